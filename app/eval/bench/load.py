"""Many requests at once: throughput over popular documents, and what arriving requests do to running answers."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
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
_ARMS: dict[str, PolicySpec | None] = {
    ORDINARY: None,
    "fused, hybrid 15 %": PolicySpec("hybrid", {"share": 0.15}),
    "fused, hybrid 10 %": PolicySpec("hybrid", {"share": 0.10}),
    "fused, boundary 16": PolicySpec("boundary", {"tokens": 16}),
}
_GAP = "p95 gap of running answers"
_STORY = "Tell a long story about a lighthouse."


@dataclass(frozen=True)
class LoadCase:
    """`clients` clients ask `requests` questions in all, each over `passages` of `documents` passages drawn by Zipf.

    All of it is done for each number of `passages`. For the interference part, `streams` answers of `stream_tokens`
    tokens run while a request over the first number of passages arrives each `arrival_s` seconds. Arms take turns for
    `rounds` rounds.
    """

    clients: int = 8
    requests: int = 24
    documents: int = 40
    passages: tuple[int, ...] = (5, 10)
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
    documents = longest_passages(lab, case.documents)
    await lab.bank(documents)
    prompts = {count: _draw(lab, case, documents, count) for count in case.passages}
    rows, bars = list[Row](), list[Bar]()
    for count in case.passages:
        figures = await _throughput(lab, case, prompts[count], str(count))
        rows += [Row(name, row, name == ORDINARY, _table(count, prompts[count])) for name, row in figures.items()]
        bars += _bars(count, figures)
    gaps = {"no other request": await _interference(lab, case, "quiet", None, [])}
    for name, policy in _ARMS.items():
        gaps[name] = await _interference(lab, case, name, policy, prompts[case.passages[0]])
    rows += [Row(name, {_GAP: gap}, name == ORDINARY, "interference") for name, gap in gaps.items()]
    return BenchResult(
        "load",
        f"{case.clients} clients, {case.requests} requests over some of {case.documents} passages (Zipf), "
        f"answers of {case.answer_tokens} tokens",
        tuple(rows),
        tuple(bars),
        {"case": vars(case)},
        (
            f"Gaps: between tokens of {case.streams} running answers while a request over {case.passages[0]} passages "
            f"arrives each {case.arrival_s:g} s.",
        ),
    )


async def _throughput(lab: Lab, case: LoadCase, prompts: Sequence[Prompt], salt: str) -> dict[str, dict[str, Figure]]:
    """Every arm's figures."""
    rounds: dict[str, list[_Round]] = {name: [] for name in _ARMS}
    for number in range(case.rounds):
        for name, policy in _ARMS.items():
            rounds[name].append(await _work_off(lab, case, policy, prompts, f"load-{salt}-{name}-{number}"))
    return {name: _figures(found) for name, found in rounds.items()}


def _table(count: int, prompts: Sequence[Prompt]) -> str:
    return f"{count} passages, {np.mean([prompt.context_tokens for prompt in prompts]):,.0f} tokens"


def _bars(count: int, figures: Mapping[str, Mapping[str, Figure]]) -> list[Bar]:
    speed = {name: row["requests/s"].median for name, row in figures.items()}
    claim = f"requests per second over {count} passages"
    fused = [name for name in figures if name != ORDINARY]
    return [Bar(f"{claim}, {name} over ordinary", speed[name] / speed[ORDINARY], 2.5, at_least=True) for name in fused]


def _draw(lab: Lab, case: LoadCase, passages: Sequence[Passage], count: int) -> list[Prompt]:
    """Draw each request's `count` passages without repetition, the n-th most popular with weight 1/n."""
    rng = np.random.default_rng(case.seed)
    weights = 1 / np.arange(1, len(passages) + 1)
    popular = random.Random(case.seed).sample(list(passages), len(passages))
    prompts = []
    for _ in range(case.requests):
        chosen = rng.choice(len(popular), size=count, replace=False, p=weights / weights.sum())
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
