"""Keeping a tier within its capacity: least recently used chunks go first."""

import threading
from collections.abc import Callable

from store.tier import Tier, TierEntry

HIGH_WATERMARK = 0.95
LOW_WATERMARK = 0.85
RESCAN_WRITES = 64
"""Writes after which the directory is counted again, because other processes write there too."""


class Room:
    """Tracks a tier's bytes and frees room by `move` when a write would pass the high watermark."""

    def __init__(self, tier: Tier, move: Callable[[TierEntry], bool]) -> None:
        self._tier = tier
        self._move = move
        self._lock = threading.Lock()
        self._used = 0
        self._writes_to_rescan = 0

    def reserve(self, size: int) -> bool:
        """Make room for `size` bytes; False when the tier can never hold them."""
        if size > self._tier.capacity_bytes:
            return False
        with self._lock:
            self._count(size)
            if self._used > self._tier.capacity_bytes * HIGH_WATERMARK:
                self._free(size)
            return self._used <= self._tier.capacity_bytes

    def _count(self, size: int) -> None:
        if self._writes_to_rescan <= 0:
            self._used = sum(entry.bytes for entry in self._tier.entries())
            self._writes_to_rescan = RESCAN_WRITES
        self._writes_to_rescan -= 1
        self._used += size

    def _free(self, size: int) -> None:
        entries = sorted(self._tier.entries(), key=lambda entry: entry.last_used)
        self._used = sum(entry.bytes for entry in entries) + size
        for entry in entries:
            if self._used <= self._tier.capacity_bytes * LOW_WATERMARK:
                return
            if self._move(entry):
                self._used -= entry.bytes
