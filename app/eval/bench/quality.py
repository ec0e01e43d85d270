"""How far each recompute policy leaves the answers from an ordinary prefill's: all passages, in the file's order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from tqdm import tqdm

from app.config import Settings
from app.eval.arms import Arm
from app.eval.bench.registry import Size
from app.eval.bench.result import Bar, BenchResult, Figure, Row
from app.eval.data import load_questions
from app.eval.lab import Lab
from app.eval.records import AnswerRecord
from app.eval.runner import Asker, RunSpec
from app.eval.running import on_lab
from app.eval.summary import by_arm

DATA = ("needle", "cut")
MODES = ("naive", "cacheblend", "none", "boundary", "deviation", "variance", "query", "hybrid")
_BASELINES = ("naive", "cacheblend", "deviation")
_JUDGED = 0.15


@dataclass(frozen=True)
class QualityCase:
    """`questions` of each data set, every mode at each of `budgets`."""

    questions: int = 8
    budgets: tuple[float, ...] = (_JUDGED,)
    data: tuple[str, ...] = DATA
    answer_tokens: int = 6
    kl_tokens: int = 4

    def spec(self) -> RunSpec:
        """What it asks, as an evaluation."""
        return RunSpec(
            self.data,
            MODES,
            self.budgets,
            limit=self.questions,
            answer_tokens=self.answer_tokens,
            kl_tokens=self.kl_tokens,
        )


FULL = QualityCase(16, (0.05, 0.10, _JUDGED, 0.30))


def run(settings: Settings, size: Size) -> BenchResult:
    """Start an engine, measure, stop it."""
    case = QualityCase() if size is Size.SHORT else FULL
    return on_lab(settings, lambda lab: measure_quality(lab, case))


async def measure_quality(lab: Lab, case: QualityCase) -> BenchResult:
    """Measure on a running lab."""
    spec = case.spec()
    asker, questions = Asker.of(spec, lab), load_questions(spec.data, spec.limit, spec.seed)
    records = [
        record for question in tqdm(questions, desc="Quality", unit="question") for record in await asker.ask(question)
    ]
    answers = by_arm(record for record in records if isinstance(record, AnswerRecord))
    return _result(case, spec.arms()[1:], {name: list(found.values()) for name, found in answers.items()})


def _result(case: QualityCase, arms: Sequence[Arm], answers: Mapping[str, Sequence[AnswerRecord]]) -> BenchResult:
    return BenchResult(
        "quality",
        f"Distance from an ordinary prefill's answers, {case.questions} questions each of {' and '.join(case.data)}",
        tuple(_row(arm, answers[arm.name]) for arm in sorted(arms, key=lambda arm: arm.budget or 0)),
        tuple(_bars(answers)) if _JUDGED in case.budgets else (),
        {"case": vars(case)},
        (
            "KL: of next-token distributions over the first tokens of the ordinary answer, nats, mean of a question; "
            "its median over questions stands with the best and the worst one. `naive` and `cacheblend`: passages "
            "computed by themselves, as those codes do; the others: passages computed behind our ingest contexts, "
            "`deviation` with CacheBlend's choice of tokens.",
        ),
    )


def _row(arm: Arm, answers: Sequence[AnswerRecord]) -> Row:
    kl = _kl(answers)
    figures = {
        "KL, mean": Figure.of([mean(kl)], ""),
        "KL, median": Figure.of(kl, ""),
        "same top token": Figure.of([100 * mean([mean(answer.agreement) for answer in answers])], "%"),
        "F1 with the ordinary answer": Figure.of([mean([answer.f1_vs_full for answer in answers])], ""),
    }
    table = f"{arm.budget:.0%} recomputed" if arm.budget else "nothing recomputed"
    return Row(arm.mode, figures, arm.mode in _BASELINES, table)


def _bars(answers: Mapping[str, Sequence[AnswerRecord]]) -> Iterator[Bar]:
    at = {mode: answers[f"{mode}@{_JUDGED:g}"] for mode in MODES if f"{mode}@{_JUDGED:g}" in answers}
    kl = {mode: _kl(found) for mode, found in at.items()}
    for rival in ("cacheblend", "deviation"):
        ratio = mean(kl["hybrid"]) / mean(kl[rival])
        yield Bar(f"mean KL of hybrid over that of {rival}, 15 %", ratio, 0.25, at_least=False)
    ratio = median(kl["variance"]) / median(kl["deviation"])
    yield Bar("median KL of variance over that of deviation, 15 %", ratio, 1, at_least=False)
    f1 = mean([answer.f1_vs_full for answer in at["hybrid"]])
    yield Bar("F1 of hybrid with the ordinary answer, 15 %", f1, 0.85, at_least=True)


def _kl(answers: Sequence[AnswerRecord]) -> list[float]:
    """Mean divergence at each question."""
    return [mean(answer.kl) for answer in answers]
