"""Leaving a medium alone for a while after it failed, so that nothing waits for it again and again."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from store.errors import TierFull
from store.keys import ChunkKey
from store.source import Source
from store.tally import Tally
from store.tier import Tier, TierEntry
from store.wrapped import WrappedTier

PAUSE_SECONDS = 30.0
T = TypeVar("T")


class BreakerTier(WrappedTier):
    """After an OSError every call fails at once, counted as `<tier>_skipped`, until `pause_s` seconds have passed."""

    def __init__(self, inner: Tier, tally: Tally, pause_s: float = PAUSE_SECONDS) -> None:
        super().__init__(inner)
        self._tally = tally
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._closed_until = 0.0

    def contains(self, key: ChunkKey) -> bool:
        """See `Tier.contains`."""
        return self._try(lambda: self.inner.contains(key))

    def open(self, key: ChunkKey) -> Source | None:
        """See `Tier.open`."""
        return self._try(lambda: self.inner.open(key))

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        """See `Tier.write`."""
        return self._try(lambda: self.inner.write(key, parts))

    def delete(self, key: ChunkKey) -> bool:
        """See `Tier.delete`."""
        return self._try(lambda: self.inner.delete(key))

    def entries(self) -> Iterator[TierEntry]:
        """See `Tier.entries`."""
        return iter(self._try(lambda: list(self.inner.entries())))

    def _try(self, call: Callable[[], T]) -> T:
        with self._lock:
            waiting = self._closed_until - time.monotonic()
        if waiting > 0:
            self._tally.add(f"{self.name}_skipped")
            raise OSError(f"{self.name} tier: failed a moment ago, tried again in {waiting:.0f} s")
        try:
            return call()
        except TierFull:
            raise
        except OSError:
            with self._lock:
                self._closed_until = time.monotonic() + self._pause_s
            raise
