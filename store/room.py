"""Keeping a tier within its capacity: above the high watermark chunks leave until the low one is reached."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from store.index import Index
from store.tier import Tier, TierEntry
from store.transfers import Transfers

BATCH = 64


class Room:
    """Frees a tier's room by `sink`, in the order of the eviction policy and never a pinned chunk.

    In the background as a rule; a writer that finds no room at all frees what it needs itself. Writers of other
    processes are seen once they have written: together they may pass the capacity by what they write at one moment.
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
        self._lock = threading.RLock()
        self._reserved = 0

    @contextmanager
    def reserved(self, size: int) -> Iterator[bool]:
        """Hold room for `size` bytes while they are written and the index is told; False where there is none."""
        granted = self._reserve(size)
        try:
            yield granted
        finally:
            with self._lock:
                self._reserved -= size if granted else 0

    def relieve(self) -> None:
        """Above the high watermark, begin to shrink to the low one."""
        if self._index.used_bytes(self._tier.name) > self._high:
            self._transfers.start(("shrink", self._tier.name), lambda: self.shrink(int(self._low)))

    def shrink(self, target: int) -> bool:
        """Sink chunks until the tier holds at most `target` bytes; False when what is left cannot leave.

        Ends as well when the index cannot be told, as on a full disk: it would name the same chunks for ever.
        """
        with self._lock:
            self._index.flush()
            used = self._index.used_bytes(self._tier.name)
            while used > target:
                self._sink_batch(used - target)
                before, used = used, self._index.used_bytes(self._tier.name)
                if used >= before:
                    return False
            return True

    def _reserve(self, size: int) -> bool:
        with self._lock:
            free = self._tier.capacity_bytes - self._reserved - size
            granted = free >= 0 and (self._index.used_bytes(self._tier.name) <= free or self.shrink(free))
            self._reserved += size if granted else 0
            return granted

    def _sink_batch(self, excess: int) -> None:
        for entry in self._index.coldest(self._tier.name, BATCH):
            if excess <= 0:
                break
            self._index.age(entry.key, self._tier.name)
            if self._sink(entry):
                excess -= entry.bytes
