"""The index: what is where, how big, how often used. An aid that answers fast, never the truth: the files are.

A stale or lost index makes a read slower or a chunk leave a tier too early; it cannot make a read wrong, because
reading goes by the files alone.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.chunk import ChunkInfo
from store.database import Database, Statement
from store.index_schema import FILE_NAME, SCHEMA, VERSION
from store.keys import ChunkKey
from store.policy import Policy, Use
from store.stats import Contents
from store.tally import Tally
from store.tier import TierEntry

_CHUNK_FIELDS = (
    "key", "fingerprint", "codec", "tokens", "raw_bytes", "saved_s", "created", "last_used", "hits", "seconds_saved",
)  # fmt: skip

_AT_ONCE = 500
"""Keys in one query; SQLite allows 32,766."""

FLUSH_USES = 64
FLUSH_SECONDS = 2.0

_ADD_CHUNK = """INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    fingerprint = excluded.fingerprint, codec = excluded.codec, tokens = excluded.tokens,
    raw_bytes = excluded.raw_bytes, saved_s = excluded.saved_s, last_used = max(last_used, excluded.last_used),
    hits = hits + excluded.hits, seconds_saved = seconds_saved + excluded.seconds_saved"""
_ADD_UNKNOWN = "INSERT INTO chunks VALUES (?, '', '', 0, 0, 0, ?, ?, 0, 0) ON CONFLICT DO NOTHING"
_ADD_PLACE = "INSERT INTO places (tier, key, bytes) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET bytes = excluded.bytes"
_ADD_FACT = "INSERT INTO facts VALUES (?, ?) ON CONFLICT DO UPDATE SET value ="
_SET_PRIORITY = """UPDATE places SET priority = (
    SELECT kv_priority(c.last_used, t.clock, c.hits, c.saved_s, places.bytes)
    FROM chunks c, tiers t WHERE c.key = places.key AND t.name = places.tier) WHERE key = ?"""
_AGE = """UPDATE tiers SET clock = max(clock, coalesce((SELECT priority FROM places WHERE tier = ?1 AND key = ?2), 0))
    WHERE name = ?1"""
_CONTENTS = """SELECT count(*), sum(raw_bytes), sum(hits), sum(seconds_saved) FROM chunks c
    WHERE EXISTS (SELECT 1 FROM places WHERE key = c.key)"""
_RECORDS = """SELECT c.*,
    (SELECT group_concat(tier || ':' || bytes) FROM places WHERE key = c.key),
    (SELECT max(until) FROM pins WHERE key = c.key AND until > ?),
    (SELECT group_concat(tag, char(31)) FROM tags WHERE key = c.key) FROM chunks c"""


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """What the index knows of a chunk. Times are seconds since the epoch; `places` maps tiers to file sizes.

    `saved_s`: prefill seconds one hit saves; `seconds_saved`: what all hits saved, loading deducted; `pinned_until` is
    None for a chunk without a pin and infinite for one pinned for good.
    """

    key: ChunkKey
    fingerprint: str
    codec: str
    tokens: int
    raw_bytes: int
    saved_s: float
    created: float
    last_used: float
    hits: int
    seconds_saved: float
    places: dict[str, int]
    pinned_until: float | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A chunk seen in a tier: written, found or used (`hits` 1, `seconds_saved` then)."""

    info: ChunkInfo
    tier: str
    bytes: int
    saved_s: float
    now: float
    hits: int = 0
    seconds_saved: float = 0.0


class Index:
    """Thread-safe and shared by processes; no method raises because of the index's file (see `Database`)."""

    def __init__(self, folder: Path, policy: Policy, tally: Tally) -> None:
        functions = {"kv_priority": lambda *use: policy(Use(*use))}
        self.database = Database(folder / FILE_NAME, SCHEMA, VERSION, functions, tally)
        self._lock = threading.Lock()
        self._noted: list[Sighting] = []
        self._flushed = time.monotonic()

    def see(self, *sightings: Sighting) -> None:
        """Record that chunks are in a tier, with what is known of them."""
        self.database.write(*_see(sightings))

    def note(self, sighting: Sighting) -> bool:
        """Record later; True when it is time to `flush`."""
        with self._lock:
            self._noted.append(sighting)
            return len(self._noted) >= FLUSH_USES or time.monotonic() - self._flushed > FLUSH_SECONDS

    def flush(self) -> None:
        """Record what was noted."""
        with self._lock:
            noted, self._noted = self._noted, []
            self._flushed = time.monotonic()
        if noted:
            self.see(*noted)

    def list_files(self, tier: str, entries: Iterable[TierEntry]) -> None:
        """Record files of which only name and size are known."""
        entries = list(entries)
        self.database.write(
            (_ADD_UNKNOWN, [(entry.key, entry.last_used, entry.last_used) for entry in entries]),
            (_ADD_PLACE, [(tier, entry.key, entry.bytes) for entry in entries]),
            (_SET_PRIORITY, [(entry.key,) for entry in entries]),
        )

    def copied(self, key: ChunkKey, tier: str, size: int) -> None:
        """Record that a chunk of another tier is in this one too."""
        self.list_files(tier, [TierEntry(key, size, time.time())])

    def removed(self, key: ChunkKey, tier: str) -> None:
        """Record that a tier no longer has a chunk."""
        self._drop_noted({key}, tier)
        self.database.write(("DELETE FROM places WHERE tier = ? AND key = ?", [(tier, key)]))

    def age(self, key: ChunkKey, tier: str) -> None:
        """Record that pressure is about to take a chunk out of a tier: what stays must be worth more."""
        self.database.write((_AGE, [(tier, key)]))

    def forget(self, keys: Sequence[ChunkKey]) -> None:
        """Remove all that is known of chunks, marks included."""
        self._drop_noted(set(keys))
        tables = ("places", "chunks", "pins", "tags", "schedule")
        self.database.write(*((f"DELETE FROM {table} WHERE key = ?", [(key,) for key in keys]) for table in tables))

    def purge(self) -> int:
        """Forget chunks that no tier holds and no operator marked; returns how many."""
        gone = self.database.read(
            """SELECT key FROM chunks c WHERE NOT EXISTS (SELECT 1 FROM places p WHERE p.key = c.key)
            AND NOT EXISTS (SELECT 1 FROM tags t WHERE t.key = c.key)
            AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.key = c.key)"""
        )
        self.forget([key for (key,) in gone])
        return len(gone)

    def totals(self) -> dict[str, tuple[int, int]]:
        """Chunks and bytes by tier."""
        return {
            name: (chunks, size) for name, chunks, size in self.database.read("SELECT name, chunks, bytes FROM tiers")
        }

    def contents(self) -> Contents:
        """All chunks that some tier has."""
        ((chunks, *sums),) = self.database.read(_CONTENTS) or [(0, 0, 0, 0)]
        return Contents(chunks, *(total or 0 for total in sums))

    def used_bytes(self, tier: str) -> int:
        """Bytes of all files of a tier."""
        rows = self.database.read("SELECT bytes FROM tiers WHERE name = ?", (tier,))
        return int(rows[0][0]) if rows else 0

    def coldest(self, tier: str, limit: int) -> list[TierEntry]:
        """Unpinned chunks of a tier, those that should leave first in front."""
        rows = self.database.read(
            """SELECT key, bytes, priority FROM places p WHERE tier = ? AND NOT EXISTS
            (SELECT 1 FROM pins WHERE pins.key = p.key AND until > ?) ORDER BY priority LIMIT ?""",
            (tier, time.time(), limit),
        )
        return [TierEntry(ChunkKey(key), size, priority) for key, size, priority in rows]

    def idle(self, tier: str, before: float, limit: int) -> list[TierEntry]:
        """Unpinned chunks of a tier that were last used before a time."""
        rows = self.database.read(
            """SELECT p.key, p.bytes, c.last_used FROM chunks c JOIN places p ON p.key = c.key
            WHERE p.tier = ? AND c.last_used < ? AND NOT EXISTS
            (SELECT 1 FROM pins WHERE pins.key = p.key AND until > ?) ORDER BY c.last_used LIMIT ?""",
            (tier, before, time.time(), limit),
        )
        return [TierEntry(ChunkKey(key), size, used) for key, size, used in rows]

    def keys_in(self, tier: str) -> list[ChunkKey]:
        """All keys recorded for a tier."""
        return [ChunkKey(key) for (key,) in self.database.read("SELECT key FROM places WHERE tier = ?", (tier,))]

    def records(self, keys: Sequence[ChunkKey]) -> list[ChunkRecord]:
        """What is known of these chunks, in their order; unknown ones are left out."""
        found: dict[ChunkKey, ChunkRecord] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            query = f"{_RECORDS} WHERE c.key IN ({','.join('?' * len(some))})"
            records = (_record(row) for row in self.database.read(query, (time.time(), *some)))
            found |= {record.key: record for record in records}
        return [found[key] for key in keys if key in found]

    def page(self, tier: str | None, after: str, limit: int) -> list[ChunkRecord]:
        """Chunks in order of their keys, of one tier or of any, from behind the key `after`."""
        within = "EXISTS (SELECT 1 FROM places p WHERE p.key = c.key AND p.tier = coalesce(?, p.tier))"
        query = f"{_RECORDS} WHERE c.key > ? AND {within} ORDER BY c.key LIMIT ?"
        return [_record(row) for row in self.database.read(query, (time.time(), after, tier, limit))]

    def facts(self) -> dict[str, float]:
        """The numbers that processes keep for each other."""
        return dict(self.database.read("SELECT name, value FROM facts"))

    def set_facts(self, facts: Mapping[str, float]) -> None:
        """Keep numbers under names."""
        if facts:
            self.database.write((f"{_ADD_FACT} excluded.value", list(facts.items())))

    def add_to_facts(self, amounts: Mapping[str, float]) -> None:
        """Add to numbers that begin at 0."""
        if amounts:
            self.database.write((f"{_ADD_FACT} value + excluded.value", list(amounts.items())))

    def close(self) -> None:
        """Record what was noted and close the file."""
        self.flush()
        self.database.close()

    def _drop_noted(self, keys: set[ChunkKey], tier: str | None = None) -> None:
        with self._lock:
            self._noted = [s for s in self._noted if s.info.key not in keys or tier not in (None, s.tier)]


def _see(sightings: Sequence[Sighting]) -> Sequence[Statement]:
    chunks = [
        (s.info.key, s.info.fingerprint, s.info.codec, s.info.tokens, s.info.raw_bytes, s.saved_s, s.now, s.now, s.hits,
         s.seconds_saved) for s in sightings
    ]  # fmt: skip
    return (
        (_ADD_CHUNK, chunks),
        (_ADD_PLACE, [(s.tier, s.info.key, s.bytes) for s in sightings]),
        (_SET_PRIORITY, [(s.info.key,) for s in sightings]),
    )


def _record(row: Sequence[Any]) -> ChunkRecord:
    places, until, tags = row[-3:]
    held = (place.split(":") for place in (places or "").split(",") if place)
    sizes = {tier: int(size) for tier, size in held}
    fields: dict[str, Any] = dict(zip(_CHUNK_FIELDS, row, strict=False))
    return ChunkRecord(
        **fields, places=sizes, pinned_until=until, tags=tuple(sorted(tags.split("\x1f"))) if tags else ()
    )
