"""KVBank: passages' KV computed by the engine and put into the store, each once, many in flight."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from app.engine import Engine
from app.engine_values import Saved
from cascade.catalog import Catalog
from cascade.types import Passage
from fuse.scheme import IngestScheme, Predecessor
from store.keys import ChunkKey
from store.tiered import TieredStore


class KVBank:
    """Makes sure that passages can be answered from.

    A passage is prefilled behind its predecessor in the document, which is looked for among the passages at hand and
    then in the catalogue.

    banked: bytes of the chunks stored since the start.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        store: TieredStore,
        scheme: IngestScheme,
        fingerprint: str,
        passages_at_once: int,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._store = store
        self._scheme = scheme
        self._fingerprint = fingerprint
        self._room = asyncio.Semaphore(passages_at_once)
        self._saving: dict[str, asyncio.Task[Saved]] = {}
        self.banked = Saved(0, 0)

    async def stop(self) -> None:
        """Abandon the saves under way."""
        tasks = list(self._saving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self, keys: Collection[str]) -> None:
        """Wait for the saves of these chunks that are under way."""
        saving = [task for key, task in self._saving.items() if key in keys]
        await asyncio.gather(*saving, return_exceptions=True)

    async def store_missing(self, passages: Sequence[Passage], done: Callable[[], object]) -> None:
        """Compute and store the chunks that the store does not hold; calls `done` for each passage that it does.

        Raises:
            ExceptionGroup: of EngineError, for chunks that could not be stored.
        """
        if not self._engine.fusable:
            return
        keys = [ChunkKey(passage.chunk_key) for passage in passages]
        present = await asyncio.to_thread(self._store.contains_many, keys)
        missing = [passage for passage, there in zip(passages, present, strict=True) if not there]
        for _ in range(len(passages) - len(missing)):
            done()
        before = await self._predecessors(missing, passages)
        async with asyncio.TaskGroup() as group:
            for passage in missing:
                group.create_task(self._store_one(passage, before.get(passage.id), done))

    async def _predecessors(self, missing: Sequence[Passage], near: Sequence[Passage]) -> dict[str, Predecessor]:
        """Return the predecessor of each passage that has one, by the passage's id."""
        places = {(passage.document_id, passage.ordinal): passage for passage in near}
        for document_id in {
            p.document_id for p in missing if p.ordinal and (p.document_id, p.ordinal - 1) not in places
        }:
            for passage in await self._catalog.document_passages(document_id):
                places[document_id, passage.ordinal] = passage
        found = {p.id: places.get((p.document_id, p.ordinal - 1)) for p in missing}
        return {id: Predecessor(ChunkKey(p.chunk_key), p.token_ids) for id, p in found.items() if p is not None}

    async def _store_one(self, passage: Passage, before: Predecessor | None, done: Callable[[], object]) -> None:
        async with self._room:
            # Shielded: a save under way ends by itself, and who removes its chunk waits for it first.
            await asyncio.shield(self._save(passage, before))
        done()

    def _save(self, passage: Passage, before: Predecessor | None) -> asyncio.Task[Saved]:
        """Return the save of this passage's chunk, under way already or started now."""
        key = ChunkKey(passage.chunk_key)
        if key not in self._saving:
            steps = self._scheme.steps(key, self._fingerprint, passage.token_ids, before)
            task = self._saving[key] = asyncio.create_task(self._engine.save(steps))
            task.add_done_callback(lambda ended: self._saved(key, ended))
        return self._saving[key]

    def _saved(self, key: str, task: asyncio.Task[Saved]) -> None:
        del self._saving[key]
        if not task.cancelled() and task.exception() is None:
            self.banked += task.result()
