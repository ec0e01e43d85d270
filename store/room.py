"""Keeping a tier within its capacity: above the high watermark chunks leave until the low one is reached."""

import threading
from collections.abc import Callable

from store.index import Index
from store.tier import Tier, TierEntry
from store.transfers import Transfers

BATCH = 64


class Room:
    """Frees a tier's room by `sink`, in the order of the eviction policy and never a pinned chunk.

    In the background as a rule; a writer that finds no room at all frees what it needs itself.
    """

    def __init__(
        self,
        tier: Tier,
        index: Index,
        transfers: Transfers,
        sink: Callable[[TierEntry], bool],
        watermarks: tuple[float, float],
    ) -> None:
        self._tier = tier
        self._index = index
        self._transfers = transfers
        self._sink = sink
        self._low, self._high = (share * tier.capacity_bytes for share in watermarks)
        self._lock = threading.Lock()

    def reserve(self, size: int) -> bool:
        """Whether `size` bytes may be written; makes room where that is needed."""
        capacity = self._tier.capacity_bytes
        if size > capacity:
            return False
        used = self._index.used_bytes(self._tier.name) + size
        return used <= capacity or self.shrink(capacity - size)

    def relieve(self) -> None:
        """Above the high watermark, begin to shrink to the low one."""
        if self._index.used_bytes(self._tier.name) > self._high:
            self._transfers.start(("shrink", self._tier.name), lambda: self.shrink(int(self._low)))

    def shrink(self, target: int) -> bool:
        """Sink chunks until the tier holds at most `target` bytes; False when what is left cannot leave."""
        with self._lock:
            self._index.flush()
            while self._index.used_bytes(self._tier.name) > target:
                if not self._sink_batch(target):
                    return False
            return True

    def _sink_batch(self, target: int) -> bool:
        excess = self._index.used_bytes(self._tier.name) - target
        sunk = False
        for entry in self._index.coldest(self._tier.name, BATCH):
            if excess <= 0:
                break
            self._index.age(entry.key, self._tier.name)
            if self._sink(entry):
                excess -= entry.bytes
                sunk = True
        return sunk
