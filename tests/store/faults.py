"""Tiers that fail, as wrappers around real ones."""

import time
from collections.abc import Iterable

from store.errors import TierFull
from store.format import HEADER_GUESS
from store.keys import ChunkKey
from store.source import BytesSource, Source
from store.wrapped import WrappedTier


class DownTier(WrappedTier):
    """Answers nothing while `down`; counts what was asked of it then."""

    down = False
    asked = 0

    def contains(self, key: ChunkKey) -> bool:
        self._answer()
        return self.inner.contains(key)

    def open(self, key: ChunkKey) -> Source | None:
        self._answer()
        return self.inner.open(key)

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        self._answer()
        return self.inner.write(key, parts)

    def delete(self, key: ChunkKey) -> bool:
        self._answer()
        return self.inner.delete(key)

    def _answer(self) -> None:
        if self.down:
            self.asked += 1
            raise ConnectionError("no answer")


class HalfTier(WrappedTier):
    """Gives the first half of every file."""

    def open(self, key: ChunkKey) -> Source | None:
        source = self.inner.open(key)
        return source and BytesSource(source.read(0, source.size // 2))


class BreakingTier(WrappedTier):
    """Gives headers, then breaks off, or is slow to go on."""

    def __init__(self, inner: WrappedTier, breaks: bool = True) -> None:
        super().__init__(inner)
        self.breaks = breaks

    def open(self, key: ChunkKey) -> Source | None:
        source = self.inner.open(key)
        return source and _Breaking(source, self.breaks)


class _Breaking:
    def __init__(self, source: Source, breaks: bool) -> None:
        self._source = source
        self._breaks = breaks
        self.size = source.size

    def read(self, start: int, end: int) -> memoryview:
        if end > HEADER_GUESS and self._breaks:
            raise ConnectionResetError("connection reset")
        if end > HEADER_GUESS:
            time.sleep(0.01)
        return self._source.read(start, end)


class QuotaTier(WrappedTier):
    """A medium smaller than the tier thinks."""

    def __init__(self, inner: WrappedTier, quota: int) -> None:
        super().__init__(inner)
        self.quota = quota

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        parts = list(parts)
        used = sum(entry.bytes for entry in self.inner.entries() if entry.key != key)
        if used + sum(map(len, parts)) > self.quota:
            raise TierFull("no space left on the medium")
        return self.inner.write(key, parts)
