"""One engine with a cache too small for its requests: who is preempted, and what is left afterwards."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group

from app.engine_values import EngineConfig, Generated, Sampling
from app.errors import RequestTimeout
from app.language import Language
from app.streaming import with_deadline
from fuse.connector.config import FuseConfig
from fuse.plan import FusePlan, PolicySpec, SaveOrder, Segment
from fuse.scheme import SaveStep
from store.config import StoreConfig
from store.keys import chunk_key
from tests.e2e.gate import PASSAGES
from tests.e2e.inline import Beside, InlineEngine
from tests.e2e.models import TinyModel

BLOCKS = 11
"""Of 128 tokens, one of which vLLM keeps: three requests fit with their 3 blocks each, but not when each grows to 4."""
ANSWER_TOKENS = 160
DEADLINES_S = (0.0, 0.002, 0.01, 0.03)
"""All of them far shorter than an answer takes."""
_POLICY = PolicySpec("boundary", {"tokens": 8})
_REPEATS = 4
_STEPS_TO_SETTLE = 400


Answer = list[Mapping[int, float]]
"""Log-probabilities of the likeliest tokens at each position of a greedy answer."""


@dataclass
class Pressure:
    """alone, together: answers to the same prompts. after: the first one again, after the aborts.

    preempted: for each preemption, how many tokens had been answered. late: how many answers ran out of time. free:
    blocks before anything, after the crowd, the aborts and the answers out of time. held: threads, open files, mapped
    chunks and pins before and after these three. left: what the worker still keeps in the end.
    """

    alone: list[Answer] = field(default_factory=list)
    together: list[Answer] = field(default_factory=list)
    after: Answer = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    late: int = 0
    free: list[int] = field(default_factory=list)
    held: list[dict[str, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def press(folder: Path, tokenizer: Path, beside: bool) -> Pressure:
    """Make a model, start an engine with a small cache in this process, and crowd it. Once a process.

    beside: whether recomputes may begin before their loads have ended.
    """
    TinyModel("llama", "llama").write(folder / "model", tokenizer)
    return asyncio.run(_press(folder, beside))


async def _press(folder: Path, beside: bool) -> Pressure:
    # In float32 the rounding of another batch does not change which token is likeliest.
    language = Language.load(folder / "model", "float32", passes=1)
    connector = FuseConfig(StoreConfig(folder / "memory", folder / "disk", codec="raw")).to_extra_config()
    config = EngineConfig(language.model, "float32", connector, max_model_len=1024, num_gpu_blocks=BLOCKS)
    engine = InlineEngine(config, {})
    await engine.start()
    assert engine.fusable, engine.refusal
    if beside:
        get_kv_transfer_group().attached._model.staging = Beside()
    return await _Crowd(engine, language, folder).run()


class _Crowd:
    def __init__(self, engine: InlineEngine, language: Language, folder: Path) -> None:
        self._engine, self._language, self._folder = engine, language, folder
        self._passages = [language.plain.encode(text) for text in PASSAGES]
        self._salts = iter(range(1000))
        self._scheduler: Any = engine.inline.scheduler
        self._found = Pressure()
        self._count_preemptions()

    async def run(self) -> Pressure:
        found = self._found
        for passage in self._passages:
            await self._save(passage)
        found.free.append(await self._settled())
        prompts = [self._passages[turn:] + self._passages[:turn] for turn in range(3)]
        found.alone = [await self._ask(passages) for passages in prompts]
        found.held.append(self._held())
        found.preempted.clear()
        found.reports.clear()
        found.together = list(await asyncio.gather(*(self._ask(passages) for passages in prompts)))
        found.free.append(await self._settled())
        for steps in range(14):
            await self._cancelled(self._ask(prompts[0]), steps)
            await self._cancelled(self._save(self._passages[0] + self._passages[1][: steps + 1]), steps)
        found.free.append(await self._settled())
        for seconds in DEADLINES_S:
            await self._late(prompts[0], seconds)
        found.free.append(await self._settled())
        found.held.append(self._held())
        found.left = _left_in_worker()
        found.after = await self._ask(prompts[0])
        return found

    async def _ask(self, passages: Sequence[list[int]]) -> Answer:
        pieces = [piece async for piece in self._generate(passages)]
        self._found.reports.append(dict(pieces[-1].report))
        return [position for piece in pieces for position in piece.logprobs]

    def _generate(self, passages: Sequence[list[int]]) -> AsyncGenerator[Generated, None]:
        head = self._language.scheme.head
        context = [*passages] * _REPEATS
        prompt = [*head, *(token for passage in context for token in passage), *self._language.plain.encode("So:")]
        segments = [Segment(len(passage), self._key(passage)) for passage in context]
        plan = FusePlan(self._language.fingerprint, (Segment(len(head)), *segments), _POLICY)
        sampling = Sampling(ANSWER_TOKENS, logprobs=20)
        return self._engine.generate(prompt, sampling, plan, f"pressure-{next(self._salts)}")

    async def _late(self, passages: Sequence[list[int]], seconds: float) -> None:
        try:
            async for _ in with_deadline(self._generate(passages), seconds):
                pass
        except RequestTimeout:
            self._found.late += 1

    async def _save(self, passage: list[int]) -> None:
        head = self._language.scheme.head
        order = SaveOrder(self._key(passage), self._language.fingerprint, len(head), len(head) + len(passage))
        await self._engine.save([SaveStep((*head, *passage), order)])

    async def _cancelled(self, job: Any, steps: int) -> None:
        task = asyncio.create_task(job)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _settled(self) -> int:
        """Return the free blocks once the engine holds no request any more."""
        for _ in range(_STEPS_TO_SETTLE):
            if not self._scheduler.requests:
                break
            self._engine.inline.step()
            await asyncio.sleep(0.01)
        return int(self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def _held(self) -> dict[str, int]:
        worker: Any = get_kv_transfer_group().attached
        with open("/proc/self/maps", encoding="utf-8") as maps:
            mapped = sum(str(self._folder) in line for line in maps)
        files = len(os.listdir("/proc/self/fd"))
        return {"threads": threading.active_count(), "files": files, "maps": mapped, "pins": worker.store_stats().pins}

    def _key(self, passage: Sequence[int]) -> Any:
        return chunk_key(self._language.fingerprint, "", passage)

    def _count_preemptions(self) -> None:
        preempt = self._scheduler._preempt_request

        def counted(request: Any, *arguments: Any, **options: Any) -> None:
            self._found.preempted.append(request.num_output_tokens)
            preempt(request, *arguments, **options)

        self._scheduler._preempt_request = counted


def _left_in_worker() -> list[str]:
    """Name what the worker still keeps of requests that are gone."""
    worker: Any = get_kv_transfer_group().attached
    kept = {name: getattr(worker, name) for name in ("_loading", "_loaded", "_dropped")}
    return [f"{name}: {value}" for name, value in kept.items() if value]
