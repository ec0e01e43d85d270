"""What operators say about chunks: pins, tags, and what is to happen later."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from store.database import Database
from store.keys import ChunkKey

OPERATOR = "operator"
"""Owner of the pins that people set; programs own theirs under names of their own."""

PROGRAM_PIN_S = 600.0
"""How long a program's pin outlives a program that was killed."""


@dataclass(frozen=True, slots=True)
class Appointment:
    """A verb to be carried out on a chunk; `tier` is empty where the verb has none."""

    key: ChunkKey
    verb: str
    tier: str
    due: float


class Marks:
    """Kept in the index's file; they are lost with it, which costs speed only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pin(self, keys: Sequence[ChunkKey], ttl_s: float | None = None, owner: str = OPERATOR) -> None:
        """Keep chunks in the tiers that hold them, for `ttl_s` seconds or for good."""
        until = math.inf if ttl_s is None else time.time() + ttl_s
        sql = "INSERT INTO pins VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)"
        self._database.write(
            ("DELETE FROM pins WHERE until <= ?", [(time.time(),)]), (sql, [(key, owner, until) for key in keys])
        )

    def unpin(self, keys: Sequence[ChunkKey], owner: str = OPERATOR) -> None:
        """Take back the pins of one owner."""
        self._database.write(("DELETE FROM pins WHERE key = ? AND owner = ?", [(key, owner) for key in keys]))

    @contextmanager
    def pinned(self, keys: Sequence[ChunkKey]) -> Iterator[None]:
        """Pin while a block runs."""
        owner = uuid4().hex
        self.pin(keys, PROGRAM_PIN_S, owner)
        try:
            yield
        finally:
            self.unpin(keys, owner)

    def is_pinned(self, key: ChunkKey) -> bool:
        """Whether a pin holds now."""
        return bool(self._database.read("SELECT 1 FROM pins WHERE key = ? AND until > ?", (key, time.time())))

    def pins(self) -> int:
        """Pins that hold now."""
        rows = self._database.read("SELECT count(*) FROM pins WHERE until > ?", (time.time(),))
        return int(rows[0][0]) if rows else 0

    def tag(self, keys: Sequence[ChunkKey], tag: str) -> None:
        """Name a group of chunks, e.g. after a session. Raises ValueError on an empty or long or unprintable name."""
        if not 0 < len(tag) <= 200 or not tag.isprintable():
            raise ValueError(f"tag {tag[:80]!r}: expected 1 to 200 printable characters")
        self._database.write(("INSERT INTO tags VALUES (?, ?) ON CONFLICT DO NOTHING", [(tag, key) for key in keys]))

    def untag(self, keys: Sequence[ChunkKey], tag: str) -> None:
        """Take chunks out of a group."""
        self._database.write(("DELETE FROM tags WHERE tag = ? AND key = ?", [(tag, key) for key in keys]))

    def tagged(self, tag: str) -> list[ChunkKey]:
        """The chunks of a group."""
        return [ChunkKey(key) for (key,) in self._database.read("SELECT key FROM tags WHERE tag = ?", (tag,))]

    def appoint(self, keys: Sequence[ChunkKey], verb: str, tier: str, after_s: float) -> None:
        """Have `verb` done in `after_s` seconds; a later appointment for the same verb replaces an earlier one."""
        due = time.time() + after_s
        replace = "ON CONFLICT DO UPDATE SET tier = excluded.tier, due = excluded.due"
        sql = f"INSERT INTO schedule VALUES (?, ?, ?, ?) {replace}"
        self._database.write((sql, [(key, verb, tier, due) for key in keys]))

    def take_due(self) -> list[Appointment]:
        """The appointments whose time has come; each is given out once."""
        rows = self._database.read("DELETE FROM schedule WHERE due <= ? RETURNING key, verb, tier, due", (time.time(),))
        return sorted((Appointment(*row) for row in rows), key=lambda appointment: appointment.due)
