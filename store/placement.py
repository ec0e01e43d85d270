"""Where chunks are: writing, copying and removing them in tiers, the fastest first, and keeping the index told."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from store.errors import TierFull
from store.index import Index
from store.keys import ChunkKey
from store.room import Room
from store.tally import Tally
from store.tier import Tier, TierEntry
from store.transfers import Transfers


class Placement:
    """Moves files between tiers. Nothing here raises because of a medium: a failure is counted and reads as False.

    Copies are inclusive: what a fast tier has, the next slower local one has too as a rule, so that leaving the fast
    one costs no write. `counters` gets promotions, demotions, evictions and the tiers' errors.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        index: Index,
        transfers: Transfers,
        counters: Tally,
        watermarks: tuple[float, float],
    ) -> None:
        self.tiers = tuple(tiers)
        self.index = index
        self._counters = counters
        self._rooms = {
            tier.name: Room(tier, index, transfers, partial(self._sink_entry, tier), watermarks) for tier in tiers
        }

    def tier(self, name: str) -> Tier:
        """The tier of that name. Raises ValueError when this store has none."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise ValueError(f"tier {name!r}: expected one of {', '.join(tier.name for tier in self.tiers)}")

    def has(self, tier: Tier, key: ChunkKey) -> bool:
        """Whether a tier has a file of `key`; False as well when it does not answer."""
        try:
            return tier.contains(key)
        except OSError:
            return False

    def holders(self, key: ChunkKey) -> list[Tier]:
        """The tiers that have a file of `key`, the fastest first."""
        return [tier for tier in self.tiers if self.has(tier, key)]

    def write(
        self,
        tier: Tier,
        key: ChunkKey,
        parts: Sequence[bytes | memoryview],
        size: int,
        record: Callable[[], object],
    ) -> bool:
        """Write a file where the tier has room for it; `record` tells the index then."""
        room = self._rooms[tier.name]
        with room.reserved(size) as granted:
            if not granted or not self._write(tier, key, parts, size):
                return False
            record()
        room.relieve()
        return True

    def copy(self, key: ChunkKey, source: Tier, target: Tier) -> bool:
        """Copy a file as it is."""
        try:
            opened = source.open(key)
            data = opened.read(0, opened.size) if opened is not None else None
        except OSError:
            return False
        if data is None:
            return False
        return self.write(target, key, (data,), len(data), lambda: self.index.copied(key, target.name, len(data)))

    def remove(self, tier: Tier, key: ChunkKey) -> bool:
        """Remove a file; True when it is gone, whether or not there was one."""
        try:
            tier.delete(key)
        except OSError:
            return False
        self.index.removed(key, tier.name)
        return True

    def delete(self, key: ChunkKey) -> bool:
        """Remove a chunk from every tier; True when some tier had it."""
        held = self.holders(key)
        for tier in self.tiers:
            self.remove(tier, key)
        return bool(held)

    def promote(self, key: ChunkKey, to: Tier | None = None) -> bool:
        """Bring a chunk up to a tier (the fastest one if none is named), and to every tier on the way."""
        source = next((tier for tier in self.tiers if self.has(tier, key)), None)
        if source is None:
            return False
        reached = True
        for tier in reversed(self.tiers[self.tiers.index(to or self.tiers[0]) : self.tiers.index(source)]):
            reached = self.copy(key, source, tier)
            source = tier if reached else source
            self._counters.add("promotions", reached)
        return reached

    def demote(self, key: ChunkKey, to: Tier) -> bool:
        """Take a chunk out of every tier faster than `to`, once `to` has it."""
        faster = [tier for tier in self.holders(key) if self.tiers.index(tier) < self.tiers.index(to)]
        if not faster:
            return self.has(to, key)
        if not self.has(to, key) and not self.copy(key, faster[0], to):
            return False
        self._counters.add("demotions")
        return self._remove_from(faster, key)

    def sink(self, tier: Tier, key: ChunkKey) -> bool:
        """Make a chunk leave `tier` for the next slower one; where that cannot take it, the chunk is evicted."""
        below = self.tiers[self.tiers.index(tier) + 1 :]
        kept = any(self.has(lower, key) for lower in below) or any(self.copy(key, tier, lower) for lower in below[:1])
        self._counters.add("demotions" if kept else "evictions")
        return self.remove(tier, key)

    def evict(self, key: ChunkKey, tiers: Iterable[Tier]) -> bool:
        """Remove a chunk from tiers; True when it is gone from all of them."""
        self._counters.add("evictions")
        return self._remove_from(tiers, key)

    def sink_idle(self, tier: Tier, before: float, limit: int = 1024) -> int:
        """Sink the unpinned chunks of a tier last used before a time; returns how many."""
        entries: list[TierEntry] = self.index.idle(tier.name, before, limit)
        return sum(self.sink(tier, entry.key) for entry in entries)

    def _sink_entry(self, tier: Tier, entry: TierEntry) -> bool:
        return self.sink(tier, entry.key)

    def _remove_from(self, tiers: Iterable[Tier], key: ChunkKey) -> bool:
        removed = [self.remove(tier, key) for tier in tiers]
        return all(removed)

    def _write(self, tier: Tier, key: ChunkKey, parts: Sequence[bytes | memoryview], size: int) -> bool:
        try:
            tier.write(key, parts)
        except TierFull:
            # The medium is fuller than the index says. Once more, with as much room again.
            self._rooms[tier.name].shrink(max(0, self.index.used_bytes(tier.name) - 2 * size))
            return self._write_again(tier, key, parts)
        except OSError:
            return False
        return True

    def _write_again(self, tier: Tier, key: ChunkKey, parts: Sequence[bytes | memoryview]) -> bool:
        try:
            tier.write(key, parts)
        except OSError:
            return False
        return True
