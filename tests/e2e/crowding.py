"""A fused request that has been loaded, finds no block for its question, and goes away."""

import asyncio
from collections.abc import Callable
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group

from app.engine_values import Sampling
from tests.e2e.tiny import LIMIT, Asked, Tiny

_STEPS = 500


async def load_and_abort(tiny: Tiny, asked: Asked) -> None:
    """Hold the load of `asked` until other requests have taken every block; let it end; abort."""
    worker: Any = get_kv_transfer_group().attached
    pool = tiny.engine.inline.scheduler.kv_cache_manager.block_pool
    end_step, worker.end_step = worker.end_step, lambda idle: None
    fused = asyncio.create_task(tiny.ask(asked))
    await _until(lambda: worker._loading)
    others = [asyncio.create_task(_occupy(tiny, blocks)) for blocks in _shares(tiny, pool.get_num_free_blocks())]
    await _until(lambda: pool.get_num_free_blocks() == 0)
    worker.end_step = end_step
    await _until(lambda: worker._loaded)
    for _ in range(2):  # in every step it is tried again
        await asyncio.sleep(0)
    assert worker._loaded, "there was a block for the question after all"
    for task in (fused, *others):
        task.cancel()
    await asyncio.gather(fused, *others, return_exceptions=True)


def _shares(tiny: Tiny, free: int) -> list[int]:
    """Cut the free blocks into what one request may have."""
    most = LIMIT // tiny.block_size - 1
    return [most] * (free // most) + [free % most] * (free % most > 0)


async def _occupy(tiny: Tiny, blocks: int) -> None:
    """Answer for long from a prompt that takes so many blocks, with room for some steps in the last."""
    prompt = [7] * ((blocks - 1) * tiny.block_size + 2)
    async for _ in tiny.engine.generate(prompt, Sampling(LIMIT // 2), None, f"occupied {blocks}"):
        pass


async def _until(reached: Callable[[], object]) -> None:
    for _ in range(_STEPS):
        if reached():
            return
        await asyncio.sleep(0)
    raise TimeoutError("not reached")
