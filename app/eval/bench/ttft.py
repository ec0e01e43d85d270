"""Time to first token of fused requests against an ordinary prefill of the same tokens, interleaved in one run."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from app.config import Settings
from app.engine_values import Sampling
from app.eval.bench.registry import Size
from app.eval.bench.result import Bar, BenchResult, Figure, Row
from app.eval.bench.texts import QUESTION, longest_passages
from app.eval.lab import Answer, Lab
from app.eval.prompt import make_prompt
from app.eval.scratch import Scratch
from fuse.plan import PolicySpec

ORDINARY = "ordinary prefill"
DEFAULT_POLICIES = {
    "fused, boundary 32": PolicySpec("boundary", {"tokens": 32}),
    "fused, hybrid 15 %": PolicySpec("hybrid", {"share": 0.15}),
    "fused, hybrid 10 %": PolicySpec("hybrid", {"share": 0.10}),
    "fused, nothing recomputed": PolicySpec("none"),
}


@dataclass(frozen=True)
class TtftCase:
    """`passages` passages of at most `passage_tokens` tokens, each arm asked `repeats` times."""

    passages: int = 10
    passage_tokens: int = 300
    repeats: int = 7


def run(settings: Settings, size: Size) -> BenchResult:
    """Start an engine, measure, stop it."""
    case = TtftCase()
    settings = settings.model_copy(update={"passage_tokens": case.passage_tokens})

    async def measured() -> BenchResult:
        with Scratch() as folder:
            async with Lab.open(settings, folder) as lab:
                return await measure_ttft(lab, case)

    return asyncio.run(measured())


async def measure_ttft(lab: Lab, case: TtftCase) -> BenchResult:
    """Measure on a running lab."""
    prompt = make_prompt(lab.language, "chat", QUESTION, longest_passages(lab, case.passages))
    saved = await lab.bank(prompt.passages)
    arms: dict[str, PolicySpec | None] = {ORDINARY: None, **DEFAULT_POLICIES}
    answers: dict[str, list[Answer]] = {name: [] for name in arms}
    for repeat in tqdm(range(-1, case.repeats), desc="Time to first token", unit="round"):
        for name, policy in arms.items():
            answer = await lab.answer(prompt, policy, Sampling(1), f"ttft-{name}-{repeat}")
            if repeat >= 0:  # the first round warms up
                answers[name].append(answer)
    ordinary = [answer.ttft for answer in answers[ORDINARY]]
    return BenchResult(
        "ttft",
        f"Time to first token, {prompt.context_tokens} context tokens in {len(prompt.passages)} passages, memory tier",
        tuple(_row(name, answers[name], ordinary) for name in arms),
        _bars(answers, ordinary),
        {
            "passages": len(prompt.passages),
            "context_tokens": prompt.context_tokens,
            "prompt_tokens": len(prompt.token_ids()),
            "repeats": case.repeats,
            "raw_bytes": saved.raw_bytes,
            "stored_bytes": saved.stored_bytes,
        },
        (
            "Reading, decoding and re-rotation overlap in threads and are measured together as load; write is the copy "
            "into the paged cache. Ratios are of the same round; figures are medians (least-greatest).",
        ),
    )


def _row(name: str, answers: Sequence[Answer], ordinary: Sequence[float]) -> Row:
    figures = {
        "ttft": Figure.of([answer.ttft for answer in answers], "s"),
        "speed-up": Figure.of([base / answer.ttft for base, answer in zip(ordinary, answers, strict=True)], "x"),
    }
    stages = [answer.stages() for answer in answers]
    for stage in stages[0]:
        figures[stage] = Figure.of([split[stage] for split in stages], "s")
    for count in ("reused", "recomputed"):
        if answers[0].report:
            figures[count] = Figure.of([float(answer.report[count]) for answer in answers], "tokens")
    return Row(name, figures, baseline=name == ORDINARY)


def _bars(answers: dict[str, list[Answer]], ordinary: Sequence[float]) -> tuple[Bar, Bar]:
    fused = answers["fused, boundary 32"]
    pairs = list(zip(ordinary, fused, strict=True))
    speed = Figure.of([base / answer.ttft for base, answer in pairs], "x")
    load = Figure.of([float(answer.report["load_s"]) / base for base, answer in pairs], "")
    return (
        Bar("ordinary prefill over fused time to first token, boundary 32", speed.median, 4, at_least=True),
        Bar("load + decode + re-rotation + write as share of the ordinary prefill", load.median, 0.10, at_least=False),
    )
