"""Heads: what prompts begin with (a system prompt, a conversation so far), stored like a passage and computed once."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence

from app.engine import Engine
from app.engine_values import Saved
from fuse.plan import Segment
from fuse.scheme import SaveStep
from store.keys import ChunkKey, chunk_key

logger = logging.getLogger(__name__)

_KEPT = 1024
"""Heads that are remembered, the latest asked for."""
_SALT = "\0head"
"""Behind the tenant's: no passage may have a head's key."""


class Heads:
    """The KV of heads depends on nothing before them: in every prompt that begins with one it is exact.

    salt: a tenant's; heads hold what their users wrote.
    """

    def __init__(self, engine: Engine, fingerprint: str, salt: str = "") -> None:
        self._engine = engine
        self._fingerprint = fingerprint
        self._salt = salt + _SALT
        self._saves: OrderedDict[ChunkKey, asyncio.Task[Saved] | None] = OrderedDict()

    def segment(self, head: Sequence[int]) -> Segment:
        """Return the head's segment, with a key once its KV is stored.

        It is stored in the background when it is asked for again: the next turn of a conversation has another head.
        """
        key = self._key(head)
        save = self._saves.get(key)
        if save is None and key in self._saves and self._engine.fusable:
            save = self._start(key, head)
        self._remember(key, save)
        return _segment(head, key, save)

    async def stored(self, head: Sequence[int]) -> Segment:
        """Return the head's segment when its KV is stored; without a key if it cannot be."""
        if not self._engine.fusable:
            return Segment(len(head))
        key = self._key(head)
        save = self._saves.get(key) or self._start(key, head)
        await asyncio.wait([save])
        return _segment(head, key, save)

    def forget(self, head: Sequence[int]) -> None:
        """The head's chunk is gone: store it once more when it is asked for."""
        if (save := self._saves.get(self._key(head))) is not None and save.done():
            self._saves[self._key(head)] = None

    async def stop(self) -> None:
        """Abandon the saves under way."""
        saves = [save for save in self._saves.values() if save is not None]
        for save in saves:
            save.cancel()
        await asyncio.gather(*saves, return_exceptions=True)

    def _key(self, head: Sequence[int]) -> ChunkKey:
        return chunk_key(self._fingerprint, self._salt, head)

    def _start(self, key: ChunkKey, head: Sequence[int]) -> asyncio.Task[Saved]:
        save = asyncio.create_task(self._engine.save([SaveStep.exact(key, self._fingerprint, head)]))
        save.add_done_callback(lambda ended: self._ended(key, ended))
        self._remember(key, save)
        return save

    def _ended(self, key: ChunkKey, save: asyncio.Task[Saved]) -> None:
        if not save.cancelled() and (error := save.exception()) is not None:
            logger.warning("a prompt's head is computed every time: %s", error)
            self._remember(key, None)

    def _remember(self, key: ChunkKey, save: asyncio.Task[Saved] | None) -> None:
        self._saves[key] = save
        self._saves.move_to_end(key)
        while len(self._saves) > _KEPT:
            self._saves.popitem(last=False)


def _segment(head: Sequence[int], key: ChunkKey, save: asyncio.Task[Saved] | None) -> Segment:
    stored = save is not None and save.done() and not save.cancelled() and save.exception() is None
    return Segment(len(head), key if stored else None)
