"""From what a user names to questions: a built-in sample, a planted set, or a file in a published format."""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.eval.data import formats
from app.eval.data.planted import KINDS, Planted
from app.eval.data.question import Question
from app.eval.errors import DataError

SAMPLES = Path(__file__).parents[1] / "samples"
_PLANTED = re.compile(r"planted-(?P<kind>[a-z]+)(?::(?P<documents>\d+)x(?P<words>\d+))?")
_DEFAULT_PLANTED = 100

Reader = Callable[[formats.Record, str], Iterator[Question]]

FORMATS: dict[str, tuple[Reader, frozenset[str]]] = {
    "kvfuse": (formats.kvfuse, frozenset({"id", "question", "answers", "docs"})),
    "hotpotqa": (formats.hotpotqa, frozenset({"_id", "question", "answer", "context", "supporting_facts"})),
    "musique": (formats.musique, frozenset({"id", "question", "answer", "paragraphs"})),
    "squad": (formats.squad, frozenset({"title", "paragraphs"})),
    "longbench": (formats.longbench, frozenset({"_id", "input", "context", "answers"})),
    "ruler": (formats.ruler, frozenset({"index", "input", "outputs"})),
}
"""Readers by format name, each with the fields that its records are known by."""


def load_questions(names: Sequence[str], limit: int | None = None, seed: int = 0) -> list[Question]:
    """Return the questions of each named set, at most `limit` of each, drawn with `seed`, in file order.

    A name is a built-in sample, `planted-KIND` or `planted-KIND:DOCUMENTSxWORDS`, or the path of a file.

    Raises:
        DataError: a set is missing, malformed or of an unknown format; the message says which and where.
    """
    sets = [_draw(_load(name, limit, seed), limit, seed) for name in names]
    called = [questions[0].dataset for questions in sets]
    if twice := [name for name in dict.fromkeys(called) if called.count(name) > 1]:
        raise DataError(f"two data sets are called {twice[0]!r}: name each once, or rename a file")
    return [question for questions in sets for question in questions]


def sample_names() -> list[str]:
    """Names of the built-in samples."""
    return sorted(path.stem for path in SAMPLES.glob("*.jsonl"))


def _load(name: str, limit: int | None, seed: int) -> list[Question]:
    if planted := _PLANTED.fullmatch(name):
        return _plant(planted, limit or _DEFAULT_PLANTED, seed)
    path = SAMPLES / f"{name}.jsonl" if name in sample_names() else Path(name)
    if not path.is_file():
        known = ", ".join([*sample_names(), *(f"planted-{kind}" for kind in KINDS)])
        raise DataError(f"{name!r} is neither a file nor a built-in set ({known})")
    return _read(path)


def _plant(name: re.Match[str], count: int, seed: int) -> list[Question]:
    sizes = {key: int(value) for key, value in name.groupdict().items() if key != "kind" and value}
    try:
        return list(Planted(name["kind"], count, seed=seed, **sizes).generate())
    except ValueError as error:
        raise DataError(f"{name[0]}: {error}") from error


def _read(path: Path) -> list[Question]:
    try:
        records = _records(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} cannot be read as JSON or JSON lines: {error}") from error
    questions: list[Question] = []
    for number, record in enumerate(records, start=1):
        try:
            questions += _reader(record)(record, path.stem)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}, record {number}: {_describe(error)}") from error
    if not questions:
        raise DataError(f"{path} holds no question that can be answered")
    return _unique(questions)


def _records(text: str) -> list[Any]:
    """The records of a JSON list, of SQuAD's `data`, or of JSON lines."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(whole, dict):
        data = whole.get("data", [whole])
        return data if isinstance(data, list) else [whole]
    return whole if isinstance(whole, list) else [whole]


def _reader(record: Any) -> Reader:
    fields = record.keys()
    for reader, signature in FORMATS.values():
        if signature <= fields:
            return reader
    raise ValueError(f"fields {', '.join(sorted(fields))} are of no known format ({', '.join(FORMATS)})")


def _describe(error: Exception) -> str:
    return f"field {error} is missing" if isinstance(error, KeyError) else str(error)


def _unique(questions: Sequence[Question]) -> list[Question]:
    """Number ids that occur twice, so that an id names one question."""
    seen: dict[str, int] = {}
    unique = []
    for question in questions:
        seen[question.id] = count = seen.get(question.id, 0) + 1
        unique.append(question if count == 1 else replace(question, id=f"{question.id}#{count}"))
    return unique


def _draw(questions: list[Question], limit: int | None, seed: int) -> list[Question]:
    if limit is None or limit >= len(questions):
        return questions
    chosen = sorted(random.Random(seed).sample(range(len(questions)), limit))
    return [questions[index] for index in chosen]
