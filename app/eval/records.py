"""What a run writes down, one JSON object a line in `results.jsonl`; `SCHEMA.md` explains every field."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.eval.errors import EvalError


@dataclass(frozen=True)
class QuestionRecord:
    """A question with the passages it was asked over and how they were found.

    ranking: ids of the candidate documents in the order of relevance that the cascade gave, empty without it.
    left_out: why the question was not asked, empty if it was. select_s: seconds by stage of the cascade.
    layer_bytes: stored bytes of `k` and `v` by layer, without the files' headers. store: see `store_use`.
    """

    id: str
    dataset: str
    question: str
    answers: Sequence[str]
    gold: Sequence[str]
    passages: Sequence[Mapping[str, str]] = ()
    ranking: Sequence[str] = ()
    select_s: Mapping[str, float] = field(default_factory=dict)
    raw_bytes: int = 0
    stored_bytes: int = 0
    layer_bytes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    store: Mapping[str, Any] = field(default_factory=dict)
    left_out: str = ""


@dataclass(frozen=True)
class AnswerRecord:
    """One arm's answer to one question.

    scores: against the accepted answers. kl, agreement: for each token of full prefill's own answer; empty for `full`.
    times: seconds; `ttft` and the stages that add up to it. gaps: seconds between tokens. tokens: counts by origin.
    """

    id: str
    dataset: str
    arm: str
    mode: str
    budget: float | None
    answer: str
    scores: Mapping[str, float]
    f1_vs_full: float
    kl: Sequence[float]
    agreement: Sequence[float]
    times: Mapping[str, float]
    gaps: Sequence[float]
    tokens: Mapping[str, int]
    flops_share: float


Record = QuestionRecord | AnswerRecord
_KINDS: dict[str, type[QuestionRecord] | type[AnswerRecord]] = {"question": QuestionRecord, "answer": AnswerRecord}


class ResultFile:
    """`results.jsonl` of one run: the records of a question are appended in one write, the question's own last.

    A question without its own record was interrupted: its lines are dropped when the file is opened to go on.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def resume(self) -> set[tuple[str, str]]:
        """Drop what an interrupted question left; return (data set, id) of the finished ones."""
        records = list(self.read()) if self._path.exists() else []
        finished = {(record.dataset, record.id) for record in records if isinstance(record, QuestionRecord)}
        whole = [record for record in records if (record.dataset, record.id) in finished]
        scratch = self._path.with_suffix(".part")
        scratch.write_text("".join(map(_line, whole)), encoding="utf-8")
        scratch.replace(self._path)
        return finished

    def append(self, records: Sequence[Record]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(map(_line, records)))

    def read(self) -> Iterator[Record]:
        """Yield every complete line.

        Raises:
            EvalError: there is no such file, or a line before the last is damaged.
        """
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise EvalError(f"no results: {self._path} cannot be read ({error.strerror})") from error
        for number, line in enumerate(lines, start=1):
            try:
                yield _record(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                if number < len(lines):
                    raise EvalError(f"{self._path}, line {number}: {error}") from error


def _line(record: Record) -> str:
    kind = "question" if isinstance(record, QuestionRecord) else "answer"
    return json.dumps({"kind": kind, **asdict(record)}, ensure_ascii=False) + "\n"


def _record(fields: dict[str, Any]) -> Record:
    return _KINDS[fields.pop("kind")](**fields)
