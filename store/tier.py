"""The contract of a tier: one place where chunk files live under their keys."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from store.keys import ChunkKey
from store.source import Source


class LookupResult(Enum):
    """Where a chunk was found, fastest tier first."""

    MEMORY = "memory"
    DISK = "disk"
    REMOTE = "remote"
    MISS = "miss"

    @property
    def hit(self) -> bool:
        """True when some tier has the chunk."""
        return self is not LookupResult.MISS


@dataclass(frozen=True, slots=True)
class TierEntry:
    """One chunk file in a tier; `last_used` in seconds since the epoch."""

    key: ChunkKey
    bytes: int
    last_used: float


class Tier(Protocol):
    """Opaque files by key. Thread-safe, and safe against other processes using the same place.

    No method needs a preceding one. A file appears whole or not at all and is never changed in place.
    """

    @property
    def name(self) -> str:
        """Value of this tier's `LookupResult`."""

    @property
    def capacity_bytes(self) -> int:
        """Bytes this tier may hold."""

    def contains(self, key: ChunkKey) -> bool:
        """True when a file of that key exists now. Raises OSError."""

    def open(self, key: ChunkKey) -> Source | None:
        """The file, or None when absent. Raises OSError."""

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        """Write or replace a file; returns its size. Raises TierFull when the medium has no room, OSError otherwise."""

    def delete(self, key: ChunkKey) -> bool:
        """Remove a file; True when there was one. Raises OSError."""

    def touch(self, key: ChunkKey) -> None:
        """Mark a file as used now; an absent file or a read-only place is no error."""

    def entries(self) -> Iterator[TierEntry]:
        """All files, in no order."""

    def recover(self) -> int:
        """Remove what writers that no longer live left behind; returns the number of files."""
