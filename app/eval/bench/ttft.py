"""Time to first token of fused requests against an ordinary prefill of the same tokens, interleaved in one run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from app.config import Settings
from app.engine_values import Sampling
from app.eval.arms import Arm
from app.eval.asking import ask
from app.eval.bench.registry import Size
from app.eval.bench.result import Bar, BenchResult, Figure, Row
from app.eval.bench.texts import QUESTION, passages_of
from app.eval.lab import Answer, Lab
from app.eval.prompt import Prompt, make_prompt
from app.eval.running import on_lab


@dataclass(frozen=True)
class Way:
    """A way of answering; one that is not measured `everywhere` is measured where the time is split."""

    name: str
    arm: Arm
    raw: bool = False
    everywhere: bool = True


ORDINARY = Way("ordinary prefill", Arm("full"))
REORDERED = Way("ordinary prefill, passages cached in another order", Arm("prefix-reordered"), everywhere=False)
BOUNDARY_5 = Way("boundary 5 %", Arm("boundary", 0.05))
HYBRID_10 = Way("hybrid 10 %", Arm("hybrid", 0.10))
HYBRID_15 = Way("hybrid 15 %", Arm("hybrid", 0.15))
NOTHING = Way("nothing recomputed", Arm("none"))
RAW_5 = Way("boundary 5 %, stored raw", Arm("boundary", 0.05), raw=True, everywhere=False)
RAW_15 = Way("hybrid 15 %, stored raw", Arm("hybrid", 0.15), raw=True, everywhere=False)
WAYS = (ORDINARY, REORDERED, BOUNDARY_5, HYBRID_10, HYBRID_15, NOTHING, RAW_5, RAW_15)

Answers = Mapping[tuple[int, Way], Sequence[Answer]]
"""By tokens of passages and way, one a round."""


@dataclass(frozen=True)
class TtftCase:
    """Every way is asked over passages of each of `lengths` tokens, `rounds` times.

    split_at: the length at which the time is split into its stages, and raw chunks and prefix caching are compared.
    """

    lengths: tuple[int, ...] = (1000, 2000, 4000, 7000)
    split_at: int = 4000
    rounds: int = 3

    def ways(self, length: int) -> list[Way]:
        return [way for way in WAYS if way.everywhere or length == self.split_at]


def run(settings: Settings, size: Size) -> BenchResult:
    """Start an engine, measure, stop it."""
    case = TtftCase(rounds=3 if size is Size.SHORT else 9)
    return on_lab(settings, lambda lab: measure_ttft(lab, case))


async def measure_ttft(lab: Lab, case: TtftCase) -> BenchResult:
    """Measure on a running lab."""
    prompts = {}
    for length in case.lengths:
        prompts[length] = make_prompt(lab.language, "chat", QUESTION, passages_of(lab, length))
        await lab.bank(prompts[length].passages)
    raw = lab.uncompressed(prompts[case.split_at])
    answers: dict[tuple[int, Way], list[Answer]] = {}
    await _round(lab, case.ways(case.lengths[0]), prompts[case.lengths[0]], raw, "warm")
    for number in tqdm(range(case.rounds), desc="Time to first token", unit="round"):
        for length in case.lengths:
            found = await _round(lab, case.ways(length), prompts[length], raw, f"{number}-{length}")
            for way, answer in found.items():
                answers.setdefault((length, way), []).append(answer)
    return _result(case, prompts, answers)


async def _round(lab: Lab, ways: Sequence[Way], prompt: Prompt, raw: Prompt, salt: str) -> dict[Way, Answer]:
    """Every way once, each cold."""
    return {
        way: await ask(lab, way.arm, raw if way.raw else prompt, Sampling(1), f"ttft-{salt}-{way.name}") for way in ways
    }


def _result(case: TtftCase, prompts: Mapping[int, Prompt], answers: Answers) -> BenchResult:
    return BenchResult(
        "ttft",
        f"Time to first token by tokens of passages, memory tier, {case.rounds} rounds",
        (*_by_length(case, answers), *_stages(case, answers)),
        tuple(_bars(case, answers)),
        {
            "rounds": case.rounds,
            "passages": {str(length): len(prompt.passages) for length, prompt in prompts.items()},
            "prompt_tokens": {str(length): len(prompt.token_ids()) for length, prompt in prompts.items()},
        },
        (
            "Ratios are of the same round. Loading, decompression and choosing tokens count; `write` is the copy into "
            "the paged cache.",
        ),
    )


def _by_length(case: TtftCase, answers: Answers) -> Iterator[Row]:
    everywhere = [way for way in WAYS if way.everywhere]
    for way in everywhere:
        times = {_short(length): Figure.of(_times(answers, length, way), "s") for length in case.lengths}
        yield Row(way.name, times, way is ORDINARY, "time to first token")
    for way in everywhere[1:]:
        ratios = {_short(length): Figure.of(_ratios(answers, length, ORDINARY, way), "x") for length in case.lengths}
        yield Row(way.name, ratios, False, "times as fast as an ordinary prefill")


def _stages(case: TtftCase, answers: Answers) -> Iterator[Row]:
    """The time of every way at the one length, split."""
    for way in case.ways(case.split_at):
        found = answers[case.split_at, way]
        figures = {"all": Figure.of([answer.ttft for answer in found], "s")}
        for stage in found[0].stages():
            figures[stage] = Figure.of([answer.stages()[stage] for answer in found], "s")
        for count in ("reused", "recomputed"):
            if found[0].report:
                figures[count] = Figure.of([float(answer.report[count]) for answer in found], "tokens")
        yield Row(way.name, figures, way.arm.mode in ("full", "prefix-reordered"), f"{_short(case.split_at)}, split")


def _bars(case: TtftCase, answers: Answers) -> Iterator[Bar]:
    goals = ((HYBRID_15, 2000, 3), (HYBRID_15, 7000, 4), (HYBRID_10, 2000, 4), (BOUNDARY_5, 4000, 7))
    for way, length, goal in goals:
        if length in case.lengths:
            ratio = Figure.of(_ratios(answers, length, ORDINARY, way), "x").median
            yield Bar(
                f"{way.name} at {_short(length)}, times as fast as an ordinary prefill", ratio, goal, at_least=True
            )
    where, prefill = _short(case.split_at), _times(answers, case.split_at, ORDINARY)
    loads = [float(answer.report["load_s"]) for answer in answers[case.split_at, HYBRID_15]]
    share = Figure.of([load / whole for load, whole in zip(loads, prefill, strict=True)], "").median
    yield Bar(
        f"load, decode, re-rotate and write at {where}, share of an ordinary prefill", share, 0.05, at_least=False
    )
    slower = Figure.of(_ratios(answers, case.split_at, HYBRID_15, RAW_15), "").median
    yield Bar(f"hybrid 15 % at {where}, compressed over raw store", slower, 1.10, at_least=False)


def _times(answers: Answers, length: int, way: Way) -> list[float]:
    return [answer.ttft for answer in answers[length, way]]


def _ratios(answers: Answers, length: int, slow: Way, fast: Way) -> list[float]:
    """Time of one way over another's, round by round."""
    return [a / b for a, b in zip(_times(answers, length, slow), _times(answers, length, fast), strict=True)]


def _short(tokens: int) -> str:
    return f"{tokens // 1000}k" if tokens % 1000 == 0 else str(tokens)
