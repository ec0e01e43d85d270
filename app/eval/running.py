"""Running something that owns an engine to its end, however it ends."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from app.config import Settings
from app.eval.lab import Lab

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, but SIGTERM ends it as Ctrl-C does: the engine is stopped and its chunks are removed."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    return asyncio.run(work)


def on_lab(settings: Settings, measure: Callable[[Lab], Awaitable[T]]) -> T:
    """Start a lab, measure on it, stop it."""

    async def work() -> T:
        async with Lab.open(settings) as lab:
            return await measure(lab)

    return run_to_end(work())
