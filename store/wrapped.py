"""Adding behaviour to a tier by wrapping it: `WrappedTier` delegates, a subclass changes what it is about."""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future

from store.format import HEADER_GUESS
from store.keys import ChunkKey
from store.source import Source
from store.tally import Tally
from store.tier import Tier, TierEntry

PIECE_BYTES = 1 << 20


class WrappedTier:
    """A tier that does what `inner` does. See `store.tier.Tier`."""

    def __init__(self, inner: Tier) -> None:
        self.inner = inner
        self.name = inner.name
        self.capacity_bytes = inner.capacity_bytes

    def contains(self, key: ChunkKey) -> bool:
        """See `Tier.contains`."""
        return self.inner.contains(key)

    def open(self, key: ChunkKey) -> Source | None:
        """See `Tier.open`."""
        return self.inner.open(key)

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        """See `Tier.write`."""
        return self.inner.write(key, parts)

    def delete(self, key: ChunkKey) -> bool:
        """See `Tier.delete`."""
        return self.inner.delete(key)

    def touch(self, key: ChunkKey) -> None:
        """See `Tier.touch`."""
        self.inner.touch(key)

    def entries(self) -> Iterator[TierEntry]:
        """See `Tier.entries`."""
        return self.inner.entries()

    def recover(self) -> int:
        """See `Tier.recover`."""
        return self.inner.recover()


class MeteredTier(WrappedTier):
    """Counts into `tally`: `<tier>_written_bytes`, `<tier>_deleted_files` and `<tier>_errors`."""

    def __init__(self, inner: Tier, tally: Tally) -> None:
        super().__init__(inner)
        self._tally = tally

    def open(self, key: ChunkKey) -> Source | None:
        """See `Tier.open`."""
        try:
            return self.inner.open(key)
        except OSError:
            self._tally.add(f"{self.name}_read_errors")
            raise

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        """See `Tier.write`."""
        try:
            size = self.inner.write(key, parts)
        except OSError:
            self._tally.add(f"{self.name}_write_errors")
            raise
        self._tally.add(f"{self.name}_written_bytes", size)
        return size

    def delete(self, key: ChunkKey) -> bool:
        """See `Tier.delete`."""
        try:
            return self.inner.delete(key)
        except OSError:
            self._tally.add(f"{self.name}_delete_errors")
            raise


class ReadAheadTier(WrappedTier):
    """Fetches an opened file ahead of its reader, in order, on `pool`: for media with a long way to them."""

    def __init__(self, inner: Tier, pool: Executor) -> None:
        super().__init__(inner)
        self._pool = pool

    def open(self, key: ChunkKey) -> Source | None:
        """See `Tier.open`."""
        source = self.inner.open(key)
        return None if source is None else _ReadAhead(source, self._pool)


class _ReadAhead:
    """Pieces of a file, each fetched once; requested by the first read, in file order."""

    def __init__(self, source: Source, pool: Executor) -> None:
        self.size = source.size
        self._source = source
        self._pool = pool
        self._lock = threading.Lock()
        self._pieces: list[Future[memoryview]] = []

    def read(self, start: int, end: int) -> memoryview:
        """See `Source.read`."""
        if end <= HEADER_GUESS:  # whether the rest is wanted is not known yet
            return self._source.read(start, end)
        first, last = start // PIECE_BYTES, -(-end // PIECE_BYTES)
        pieces = [piece.result() for piece in self._started()[first:last]]
        offset = first * PIECE_BYTES
        if len(pieces) == 1:
            return pieces[0][start - offset : end - offset]
        return memoryview(b"".join(pieces))[start - offset : end - offset]

    def _started(self) -> list[Future[memoryview]]:
        with self._lock:
            if not self._pieces:
                edges = [(at, min(at + PIECE_BYTES, self.size)) for at in range(0, self.size, PIECE_BYTES)]
                self._pieces = [self._pool.submit(self._source.read, *edge) for edge in edges]
            return self._pieces
