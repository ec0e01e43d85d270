"""The verbs of operators: which chunks are hot, which are cold, and what the store is to do about it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from store.errors import StoreError
from store.index import ChunkRecord, Sighting
from store.keys import ChunkKey
from store.marks import OPERATOR, Marks
from store.placement import Placement
from store.reader import ChunkReader
from store.shelf import BAD_FILE, Shelf
from store.stats import MissReason
from store.tier import LookupResult, Tier, TierEntry
from store.transfers import Transfers
from store.verify import decode_all

BATCH = 256


class Outcome(Enum):
    """What a verb came to for one chunk."""

    DONE = "done"
    STARTED = "started"
    SCHEDULED = "scheduled"
    ABSENT = "absent"
    PINNED = "pinned"
    REFUSED = "refused"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class VerbResult:
    """What a verb came to, or in a dry run would come to, for each chunk; `bytes` are those of the chunks done."""

    verb: str
    dry_run: bool
    outcomes: Mapping[ChunkKey, Outcome]
    bytes: int

    def count(self, outcome: Outcome) -> int:
        """Chunks of that outcome."""
        return sum(each is outcome for each in self.outcomes.values())


class Control:
    """Acts on chunks by key. Verbs skip pinned chunks where they would move them down, and never raise for a medium.

    `ttl_s` limits what a verb brings about, `after_s` puts it off; with `dry_run` nothing is changed.
    """

    def __init__(
        self,
        placement: Placement,
        marks: Marks,
        shelf: Shelf,
        transfers: Transfers,
        saved_s: Callable[[int], float],
        idle_s: Mapping[str, float],
    ) -> None:
        self._placement = placement
        self._index = placement.index
        self._marks = marks
        self._shelf = shelf
        self._transfers = transfers
        self._saved_s = saved_s
        self._idle_s = idle_s
        self.pinned = marks.pinned
        self.pins = marks.pins
        self.tagged = marks.tagged
        self.contents = placement.index.contents

    def lookup(self, keys: Sequence[ChunkKey]) -> dict[ChunkKey, LookupResult]:
        """The fastest tier that has each chunk, by the files."""
        found = {key: next(iter(self._placement.holders(key)), None) for key in keys}
        return {key: LookupResult(tier.name) if tier else LookupResult.MISS for key, tier in found.items()}

    def stat(self, keys: Sequence[ChunkKey]) -> list[ChunkRecord]:
        """What the index knows of chunks; unknown ones are left out."""
        self._index.flush()
        return self._index.records(keys)

    def ls(self, tier: str | None = None, after: str = "", limit: int = 100) -> list[ChunkRecord]:
        """Chunks in order of their keys, those of one tier or all, from behind `after`."""
        self._index.flush()
        return self._index.page(tier, after, limit)

    def pin(self, keys: Sequence[ChunkKey], ttl_s: float | None = None, *, dry_run: bool = False) -> VerbResult:
        """Keep chunks where they are, for `ttl_s` seconds or until `unpin`."""
        if not dry_run:
            self._marks.pin(keys, ttl_s)
        return self._result("pin", dict.fromkeys(keys, Outcome.DONE), dry_run)

    def unpin(self, keys: Sequence[ChunkKey], *, dry_run: bool = False) -> VerbResult:
        """Take operators' pins back."""
        if not dry_run:
            self._marks.unpin(keys, OPERATOR)
        return self._result("unpin", dict.fromkeys(keys, Outcome.DONE), dry_run)

    def tag(self, keys: Sequence[ChunkKey], tag: str, *, dry_run: bool = False) -> VerbResult:
        """Put chunks into the group `tag`, e.g. a session's. Raises ValueError on a name that cannot be one."""
        self._marks.tag([] if dry_run else keys, tag)
        return self._result("tag", dict.fromkeys(keys, Outcome.DONE), dry_run)

    def untag(self, keys: Sequence[ChunkKey], tag: str, *, dry_run: bool = False) -> VerbResult:
        """Take chunks out of a group."""
        self._marks.untag([] if dry_run else keys, tag)
        return self._result("untag", dict.fromkeys(keys, Outcome.DONE), dry_run)

    def promote(
        self,
        keys: Sequence[ChunkKey],
        tier: str = "memory",
        *,
        ttl_s: float | None = None,
        after_s: float = 0.0,
        dry_run: bool = False,
    ) -> VerbResult:
        """Bring chunks up to `tier`; with `ttl_s` they stay that long, and sink to disk then."""
        target = self._placement.tier(tier)
        if after_s:
            return self._appoint("promote", keys, tier, after_s, dry_run)
        outcomes = {key: self._promote(key, target, dry_run) for key in keys}
        done = [key for key, outcome in outcomes.items() if outcome is Outcome.DONE]
        if ttl_s is not None and not dry_run:
            self._marks.pin(done, ttl_s, f"promote to {tier}")
            self._marks.appoint(done, "demote", "disk", ttl_s)
        return self._result("promote", outcomes, dry_run)

    def prefetch(self, keys: Sequence[ChunkKey], *, dry_run: bool = False) -> VerbResult:
        """Bring chunks up to memory in the background, ahead of their use."""
        outcomes = {key: self._prefetch(key, dry_run) for key in keys}
        return self._result("prefetch", outcomes, dry_run)

    def demote(
        self, keys: Sequence[ChunkKey], tier: str = "disk", *, after_s: float = 0.0, dry_run: bool = False
    ) -> VerbResult:
        """Take chunks out of every tier faster than `tier`, once `tier` has them."""
        target = self._placement.tier(tier)
        if after_s:
            return self._appoint("demote", keys, tier, after_s, dry_run)
        return self._lower("demote", keys, lambda key: self._placement.demote(key, target), dry_run)

    def evict(
        self, keys: Sequence[ChunkKey], tier: str | None = None, *, after_s: float = 0.0, dry_run: bool = False
    ) -> VerbResult:
        """Remove chunks from one tier, or from all: they are computed again when needed."""
        tiers = [self._placement.tier(tier)] if tier else list(self._placement.tiers)
        if after_s:
            return self._appoint("evict", keys, tier or "", after_s, dry_run)
        return self._lower("evict", keys, lambda key: self._placement.evict(key, tiers), dry_run)

    def verify(self, keys: Sequence[ChunkKey], *, dry_run: bool = False) -> VerbResult:
        """Decode every copy of the chunks and check it against its checksums; a bad copy is removed."""
        return self._result("verify", {key: self._verify(key, dry_run) for key in keys}, dry_run)

    def purge(self) -> int:
        """Forget what is known of chunks that no tier holds; returns how many."""
        return self._index.purge()

    def rebuild_index(self) -> int:
        """Make the index agree with the files; returns the chunks found. Marks and counts of known chunks stay."""
        return sum(self._rebuild(tier) for tier in self._placement.tiers)

    def sweep(self) -> None:
        """Carry out the appointments that are due, then sink idle chunks."""
        for due in self._marks.take_due():
            if due.verb == "promote":
                self.promote([due.key], due.tier)
            elif due.verb == "demote":
                self.demote([due.key], due.tier)
            else:
                self.evict([due.key], due.tier or None)
        for name, idle_s in self._idle_s.items():
            if idle_s:
                self._placement.sink_idle(self._placement.tier(name), time.time() - idle_s)

    def _promote(self, key: ChunkKey, target: Tier, dry_run: bool) -> Outcome:
        if not self._placement.holders(key):
            return Outcome.ABSENT
        return Outcome.DONE if dry_run or self._placement.promote(key, target) else Outcome.REFUSED

    def _prefetch(self, key: ChunkKey, dry_run: bool) -> Outcome:
        held = self._placement.holders(key)
        if not held:
            return Outcome.ABSENT
        if held[0] is self._placement.tiers[0]:
            return Outcome.DONE
        if not dry_run:
            self._transfers.start(("promote", key), lambda: self._placement.promote(key))
        return Outcome.STARTED

    def _lower(self, verb: str, keys: Sequence[ChunkKey], act: Callable[[ChunkKey], bool], dry_run: bool) -> VerbResult:
        def one(key: ChunkKey) -> Outcome:
            if self._marks.is_pinned(key):
                return Outcome.PINNED
            if not self._placement.holders(key):
                return Outcome.ABSENT
            return Outcome.DONE if dry_run or act(key) else Outcome.REFUSED

        sizes = self._sizes(keys)
        return self._result(verb, {key: one(key) for key in keys}, dry_run, sizes)

    def _verify(self, key: ChunkKey, dry_run: bool) -> Outcome:
        held = self._placement.holders(key)
        good = [tier for tier in held if self._is_good(tier, key)]
        for tier in held:
            if tier not in good and not dry_run:
                self._placement.remove(tier, key)
        if not held:
            return Outcome.ABSENT
        return Outcome.DONE if good == held else Outcome.CORRUPT

    def _is_good(self, tier: Tier, key: ChunkKey) -> bool:
        """A copy that cannot be read at all just now, or is of a newer release, is not taken for a bad one."""
        found = self._shelf.open(tier, key)
        if isinstance(found, MissReason):
            return found not in BAD_FILE
        try:
            decode_all(found)
        except OSError:
            return True
        except StoreError:
            return False
        return True

    def _appoint(self, verb: str, keys: Sequence[ChunkKey], tier: str, after_s: float, dry_run: bool) -> VerbResult:
        if not dry_run:
            self._marks.appoint(keys, verb, tier, after_s)
        return self._result(verb, dict.fromkeys(keys, Outcome.SCHEDULED), dry_run)

    def _rebuild(self, tier: Tier) -> int:
        found: list[TierEntry] = []
        try:
            for entry in tier.entries():
                found.append(entry)
                if len(found) % BATCH == 0:
                    self._record(tier, found[-BATCH:])
        except OSError:
            return len(found)
        self._record(tier, found[len(found) - len(found) % BATCH :])
        seen = {entry.key for entry in found}
        for key in self._index.keys_in(tier.name):
            if key not in seen and not self._placement.has(tier, key):
                self._index.removed(key, tier.name)
        return len(found)

    def _record(self, tier: Tier, entries: Sequence[TierEntry]) -> None:
        """Local files are opened for what their headers say; remote ones are described when they are first used."""
        if tier.name == LookupResult.REMOTE.value:
            self._index.list_files(tier.name, entries)
            return
        opened = ((entry, self._shelf.open(tier, entry.key)) for entry in entries)
        sightings = [
            Sighting(reader.info, tier.name, reader.stored_bytes, self._saved_s(reader.info.tokens), entry.last_used)
            for entry, reader in opened
            if isinstance(reader, ChunkReader)
        ]
        self._index.see(*sightings)

    def _sizes(self, keys: Sequence[ChunkKey]) -> dict[ChunkKey, int]:
        records = self._index.records(keys)
        return {record.key: max(record.places.values(), default=0) for record in records}

    def _result(
        self,
        verb: str,
        outcomes: Mapping[ChunkKey, Outcome],
        dry_run: bool,
        sizes: Mapping[ChunkKey, int] | None = None,
    ) -> VerbResult:
        done = [key for key, outcome in outcomes.items() if outcome in (Outcome.DONE, Outcome.STARTED)]
        sizes = self._sizes(done) if sizes is None else sizes
        return VerbResult(verb, dry_run, outcomes, sum(sizes.get(key, 0) for key in done))
