"""What changed between two runs of the same questions, with significance."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.eval.bootstrap import Interval, paired_difference
from app.eval.errors import EvalError
from app.eval.records import AnswerRecord, ResultFile
from app.eval.summary import Extract, by_arm, measures_of

_TIMES: dict[str, Extract] = {"ttft_s": lambda record: record.times["ttft"]}


@dataclass(frozen=True)
class Change:
    """`after - before` of one measure of one arm over the questions that both runs asked."""

    arm: str
    measure: str
    before: float
    after: float
    difference: Interval

    def __str__(self) -> str:
        change = self.difference
        mark = "*" if change.significant else " "
        return (
            f"{mark} {self.arm:24} {self.measure:11} {self.before:8.4f} -> {self.after:8.4f}  "
            f"{change.mean:+.4f} [{change.low:+.4f}, {change.high:+.4f}] n={change.n}"
        )


def compare(before: Path, after: Path) -> list[Change]:
    """Compare the runs in two folders, arm by arm, question by question.

    Raises:
        EvalError: a folder holds no run, or the two have no arm and question in common.
    """
    ours, theirs = (by_arm(_answers(folder)) for folder in (after, before))
    changes = [change for arm in ours if arm in theirs for change in _changes(arm, theirs[arm], ours[arm])]
    if not changes:
        raise EvalError(f"{before} and {after} have no arm with a question in common")
    return changes


def _answers(folder: Path) -> Iterator[AnswerRecord]:
    return (record for record in ResultFile(folder / "results.jsonl").read() if isinstance(record, AnswerRecord))


Answers = dict[tuple[str, str], AnswerRecord]


def _changes(arm: str, before: Answers, after: Answers) -> Iterator[Change]:
    """Yield every measure that all the common answers of both runs have."""
    pairs = [(before[key], after[key]) for key in after if key in before]
    if not pairs:
        return
    measures = set.intersection(*(set(measures_of(record)) for pair in pairs for record in pair))
    for name, of in (measures_of(pairs[0][0]) | _TIMES).items():
        if name in measures or name in _TIMES:
            first, second = [of(old) for old, _ in pairs], [of(new) for _, new in pairs]
            difference = paired_difference(second, first)
            yield Change(arm, name, sum(first) / len(first), sum(second) / len(second), difference)
