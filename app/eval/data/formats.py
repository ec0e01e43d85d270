"""Readers of published formats: one parsed record to questions.

Each reader takes one record of its file (a line of JSON lines, an element of a JSON list) and yields questions.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from app.eval.data.question import Doc, Question

Record = Mapping[str, Any]

_LONGBENCH_PASSAGE = re.compile(r"^Passage \d+:\n", re.MULTILINE)
_RULER_DOCUMENT = re.compile(r"^Document \d+:\n", re.MULTILINE)
_SQUAD_CANDIDATES = 10
"""Paragraphs of the article around the one asked about: a whole article is longer than small models read."""
_RULER_PARAGRAPHS = 8
"""Documents that a RULER haystack without documents of its own is cut into."""


def kvfuse(record: Record, dataset: str) -> Iterator[Question]:
    """This project's own JSON lines: id, question, answers, docs (id, title, text), gold_doc_ids, answer_prefix."""
    docs = tuple(Doc(str(doc["id"]), _title(doc.get("title", "")), doc["text"]) for doc in record["docs"])
    yield Question(
        str(record["id"]),
        dataset,
        record["question"],
        _texts(record["answers"]),
        docs,
        frozenset(map(str, record.get("gold_doc_ids", ()))),
        record.get("answer_prefix", ""),
    )


def hotpotqa(record: Record, dataset: str) -> Iterator[Question]:
    """HotpotQA and 2WikiMultihopQA: context `[[title, [sentence, ...]], ...]`, supporting_facts `[[title, n], ...]`."""
    docs = tuple(
        Doc(f"d{number}", title, "".join(_spaced(sentences)).strip())
        for number, (title, sentences) in enumerate(record["context"])
    )
    supporting = {title for title, _ in record.get("supporting_facts", ())}
    gold = frozenset(doc.id for doc in docs if doc.title in supporting)
    yield Question(str(record["_id"]), dataset, record["question"], (record["answer"],), docs, gold)


def musique(record: Record, dataset: str) -> Iterator[Question]:
    """MuSiQue: paragraphs (idx, title, paragraph_text, is_supporting), answer, answer_aliases, answerable."""
    if not record.get("answerable", True):
        return
    paragraphs = record["paragraphs"]
    docs = tuple(Doc(f"d{item['idx']}", item["title"], item["paragraph_text"]) for item in paragraphs)
    gold = frozenset(f"d{item['idx']}" for item in paragraphs if item["is_supporting"])
    answers = (record["answer"], *record.get("answer_aliases", ()))
    yield Question(str(record["id"]), dataset, record["question"], answers, docs, gold)


def squad(record: Record, dataset: str) -> Iterator[Question]:
    """One article of SQuAD 1.1/2.0 or XQuAD: neighbouring paragraphs of the article are the candidates."""
    title = _title(record["title"])
    docs = tuple(
        Doc(f"{title}-{number}", title, paragraph["context"]) for number, paragraph in enumerate(record["paragraphs"])
    )
    for number, paragraph in enumerate(record["paragraphs"]):
        first = max(0, min(number - _SQUAD_CANDIDATES // 2, len(docs) - _SQUAD_CANDIDATES))
        near, gold = docs[first : first + _SQUAD_CANDIDATES], frozenset({docs[number].id})
        for asked in paragraph["qas"]:
            answers = tuple(dict.fromkeys(answer["text"] for answer in asked["answers"]))
            if answers and not asked.get("is_impossible", False):
                yield Question(str(asked["id"]), dataset, asked["question"], answers, near, gold)


def longbench(record: Record, dataset: str) -> Iterator[Question]:
    """LongBench: input, context, answers; multi-document contexts are cut at their `Passage n:` lines."""
    docs = tuple(_documents(record["context"], _LONGBENCH_PASSAGE))
    yield Question(str(record["_id"]), dataset, record["input"], _texts(record["answers"]), docs)


def ruler(record: Record, dataset: str) -> Iterator[Question]:
    """RULER: input (instruction line, haystack, question line), outputs, answer_prefix.

    The haystack's documents, or its paragraphs evenly, become candidates; those that hold an answer are gold.
    """
    body, _, question = record["input"].rstrip().rpartition("\n")
    _, _, haystack = body.partition("\n")
    answers = _texts(record["outputs"])
    cut = _documents(haystack, _RULER_DOCUMENT)
    docs = cut if len(cut) > 1 else _paragraphs(haystack)
    gold = frozenset(doc.id for doc in docs if any(answer in doc.text for answer in answers))
    prefix = record.get("answer_prefix", "").strip()
    question = question.removeprefix("Question:").strip()
    yield Question(f"{dataset}-{record['index']}", dataset, question, answers, tuple(docs), gold, prefix)


def _texts(values: Any) -> tuple[str, ...]:
    """Raises ValueError for a single text, which would be taken letter by letter, and for no text at all."""
    if isinstance(values, str) or not values:
        raise ValueError(f"answers are a list of texts, not {values!r}")
    return tuple(map(str, values))


def _documents(text: str, heading: re.Pattern[str]) -> list[Doc]:
    pieces = [piece.strip() for piece in heading.split(text) if piece.strip()]
    return [Doc(f"d{number}", "", piece) for number, piece in enumerate(pieces)]


def _paragraphs(text: str) -> list[Doc]:
    """Cut a text into about equal documents at line ends, or at sentence ends if it is one line."""
    units = [line for line in text.splitlines() if line.strip()]
    if len(units) < _RULER_PARAGRAPHS:
        units = re.split(r"(?<=[.!?])\s+", text.strip())
    size = -(-len(units) // _RULER_PARAGRAPHS)
    pieces = [" ".join(units[start : start + size]) for start in range(0, len(units), size)]
    return [Doc(f"d{number}", "", piece) for number, piece in enumerate(pieces)]


def _spaced(sentences: list[str]) -> Iterator[str]:
    """Sentences as published: HotpotQA's carry their leading space, 2Wiki's do not."""
    for number, sentence in enumerate(sentences):
        yield sentence if number == 0 or sentence.startswith(" ") else f" {sentence}"


def _title(title: str) -> str:
    """Titles of SQuAD hold underscores, which small models repeat."""
    return title.replace("_", " ")
