"""Many requests at once: throughput over popular documents, and what arriving requests do to running answers."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.config import Settings
from app.engine_values import Sampling
from app.eval.bench.registry import Size
from app.eval.bench.result import Bar, BenchResult, Figure, Row
from app.eval.bench.texts import QUESTION, longest_passages
from app.eval.lab import Answer, Lab
from app.eval.prompt import Prompt, make_prompt
from app.eval.running import on_lab
from cascade.types import Passage
from fuse.plan import PolicySpec

ORDINARY = "ordinary prefill, prefix cache on"
FUSED = "fused, hybrid 15 %"
_ARMS: dict[str, PolicySpec | None] = {
    ORDINARY: None,
    FUSED: PolicySpec("hybrid", {"share": 0.15}),
    "fused, boundary 16": PolicySpec("boundary", {"tokens": 16}),
}
_STORY = "Tell a long story about a lighthouse."


@dataclass(frozen=True)
class LoadCase:
    """`clients` clients ask `requests` questions in all, each over `passages` of `documents` passages drawn by Zipf.

    For the interference part, `streams` answers of `stream_tokens` tokens run while a request arrives each
    `arrival_s` seconds. Arms take turns for `rounds` rounds.
    """

    clients: int = 8
    requests: int = 36
    documents: int = 40
    passages: int = 5
    answer_tokens: int = 24
    streams: int = 4
    stream_tokens: int = 72
    arrival_s: float = 0.5
    rounds: int = 1
    seed: int = 0


def run(settings: Settings, size: Size) -> BenchResult:
    """Start an engine, measure, stop it."""
    case = LoadCase() if size is Size.SHORT else LoadCase(requests=96, rounds=3)
    return on_lab(settings, lambda lab: measure_load(lab, case))


async def measure_load(lab: Lab, case: LoadCase) -> BenchResult:
    """Measure on a running lab."""
    passages = longest_passages(lab, case.documents)
    await lab.bank(passages)
    prompts = _draw(lab, case, passages)
    rounds: dict[str, list[_Round]] = {name: [] for name in _ARMS}
    for number in range(case.rounds):
        for name, policy in _ARMS.items():
            rounds[name].append(await _work_off(lab, case, policy, prompts, f"load-{name}-{number}"))
    quiet = await _interference(lab, case, "quiet", None, [])
    gaps = {name: await _interference(lab, case, name, policy, prompts) for name, policy in _ARMS.items()}
    figures = {name: _figures(rounds[name]) | {"p95 gap of running answers": gaps[name]} for name in _ARMS}
    speeds = {name: figures[name]["requests/s"].median / figures[ORDINARY]["requests/s"].median for name in _ARMS}
    bars = [
        Bar(f"requests per second, {name} over ordinary", speed, 2.5, at_least=True)
        for name, speed in speeds.items()
        if name != ORDINARY
    ]
    return BenchResult(
        "load",
        f"{case.clients} clients, {case.requests} requests over {case.passages} of {case.documents} passages (Zipf)",
        (
            *(Row(name, row, baseline=name == ORDINARY) for name, row in figures.items()),
            Row("no other request", {"p95 gap of running answers": quiet}),
        ),
        tuple(bars),
        {"case": vars(case)},
        (f"Gaps: between tokens of {case.streams} running answers while a request arrives each {case.arrival_s:g} s.",),
    )


def _draw(lab: Lab, case: LoadCase, passages: Sequence[Passage]) -> list[Prompt]:
    """Draw each request's passages without repetition, the n-th most popular with weight 1/n."""
    rng = np.random.default_rng(case.seed)
    weights = 1 / np.arange(1, len(passages) + 1)
    popular = random.Random(case.seed).sample(list(passages), len(passages))
    prompts = []
    for _ in range(case.requests):
        chosen = rng.choice(len(popular), size=case.passages, replace=False, p=weights / weights.sum())
        prompts.append(make_prompt(lab.language, "chat", QUESTION, [popular[index] for index in chosen]))
    return prompts


@dataclass(frozen=True)
class _Round:
    """All the requests once, and the seconds that they took together."""

    seconds: float
    answers: tuple[Answer, ...]


async def _work_off(
    lab: Lab, case: LoadCase, policy: PolicySpec | None, prompts: Sequence[Prompt], salt: str
) -> _Round:
    """Let the clients work the prompts off; one salt for all, so that the engine's prefix cache serves as it would."""
    waiting, answers = iter(prompts), list[Answer]()

    async def client() -> None:
        for prompt in waiting:
            answers.append(await lab.answer(prompt, policy, Sampling(case.answer_tokens), salt))

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(case.clients)))
    return _Round(time.perf_counter() - started, tuple(answers))


def _figures(rounds: Sequence[_Round]) -> dict[str, Figure]:
    answers = [answer for one in rounds for answer in one.answers]
    return {
        "requests/s": Figure.of([len(one.answers) / one.seconds for one in rounds], ""),
        "ttft": Figure.of([answer.ttft for answer in answers], "s"),
        "total": Figure.of([answer.token_times[-1] for answer in answers], "s"),
    }


async def _interference(
    lab: Lab, case: LoadCase, name: str, policy: PolicySpec | None, arriving: Sequence[Prompt]
) -> Figure:
    """Return the 95th percentile of the gaps between tokens of running answers, one value a stream."""
    story = make_prompt(lab.language, "chat", _STORY, [])
    sampling = Sampling(case.stream_tokens)
    streams = [
        asyncio.create_task(lab.answer(story, None, sampling, f"stream-{name}-{number}"))
        for number in range(case.streams)
    ]
    arrivals = asyncio.create_task(_arrive(lab, case, name, policy, arriving))
    answers = await asyncio.gather(*streams)
    arrivals.cancel()
    await asyncio.gather(arrivals, return_exceptions=True)
    return Figure.of([float(np.percentile(answer.gaps, 95)) for answer in answers], "s")


async def _arrive(lab: Lab, case: LoadCase, name: str, policy: PolicySpec | None, prompts: Sequence[Prompt]) -> None:
    """Send one request after another, whether or not the last has ended; salts make each one cold."""
    async with asyncio.TaskGroup() as group:
        for number, prompt in enumerate(prompts):
            await asyncio.sleep(case.arrival_s)
            group.create_task(lab.answer(prompt, policy, Sampling(2), f"arrival-{name}-{number}"))
