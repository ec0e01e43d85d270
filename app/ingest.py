"""The ingest flow: documents to passages, embeddings and stored KV. Several documents and many passages in flight."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from app.bank import KVBank
from app.engine_values import EngineError, Saved
from app.telemetry import INGESTED_DOCUMENTS, INGESTED_TOKENS
from cascade.catalog import Added, AddResult, Catalog
from cascade.changes import SourceFile
from cascade.embed import Embedder
from cascade.errors import DocumentError, UnknownDocument
from cascade.parse import check_file, parse_document
from cascade.passages import PassageMaker
from cascade.types import Document, Passage, Stage
from store.keys import ChunkKey
from store.tiered import TieredStore

logger = logging.getLogger(__name__)


class Ingestor:
    """Takes documents in and works them off in the background; what a stopped process left is taken up again.

    A document is ready only once every one of its passages can be answered from: its KV is stored, and passages and
    embeddings have been written in one transaction.

    tokens_done: tokens of the documents made ready since the start.
    """

    def __init__(
        self,
        bank: KVBank,
        catalog: Catalog,
        store: TieredStore,
        embedder: Embedder,
        maker: PassageMaker,
        max_document_bytes: int,
        documents_at_once: int = 4,
    ) -> None:
        self._bank = bank
        self._catalog = catalog
        self._store = store
        self._embedder = embedder
        self._maker = maker
        self._max_document_bytes = max_document_bytes
        self._documents_at_once = documents_at_once
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._restoring: set[asyncio.Task[None]] = set()
        self.tokens_done = 0

    @property
    def backlog(self) -> int:
        """Documents queued or under way."""
        return self._queue.qsize() + len(self._running)

    @property
    def banked(self) -> Saved:
        """Bytes of the chunks stored since the start."""
        return self._bank.banked

    async def start(self) -> None:
        """Start working, beginning with what is queued already."""
        await self._drop_orphans()
        for document in await self._catalog.resume():
            self._queue.put_nowait(document.id)
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._documents_at_once)]

    async def stop(self) -> None:
        """Stop where the work stands; the next `start` goes on from there."""
        tasks = [*self._workers, *self._running.values(), *self._restoring]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._bank.stop()

    async def add(
        self,
        filename: str,
        content: bytes,
        source: SourceFile | None = None,
        replaces: str | None = None,
        retry: bool = True,
    ) -> AddResult:
        """Queue a document and return at once; the same content again is the same document (see `Catalog.add`).

        Raises:
            UnknownDocument: there is no document `replaces`.
            DocumentError: it is of no supported kind, too large or empty. What is wrong inside the file shows later,
                in the document's stage.
        """
        media_type = check_file(filename, len(content), self._max_document_bytes)
        result = await self._catalog.add(filename, content, media_type, source, replaces, retry)
        if result.outcome is not Added.DUPLICATE:
            self._queue.put_nowait(result.document.id)
        elif replaces is not None:  # it may be ready already, and the old one gone
            await self._drop_orphans()
        return result

    async def retry(self, document_id: str) -> Document:
        """Queue a failed document again.

        Raises:
            UnknownDocument: there is none of this id.
        """
        failed = (await self._catalog.get(document_id)).stage is Stage.FAILED
        document = await self._catalog.retry(document_id)
        if failed:
            self._queue.put_nowait(document_id)
        return document

    async def delete(self, document_id: str) -> None:
        """Remove a document at any stage, with every chunk that no other document uses.

        Raises:
            UnknownDocument: there is none of this id.
        """
        document = await self._catalog.get(document_id)
        started = [] if document.stage is Stage.READY else await self._made_so_far(document)
        keys = {passage.chunk_key for passage in started}
        await self._catalog.delete(document_id, keys)
        if (task := self._running.get(document_id)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._drop_orphans()

    async def _drop_orphans(self) -> None:
        """Remove the chunks of deleted documents from every tier, also those that a stopped process left."""
        keys = await self._catalog.orphans()
        await self._bank.settled(set(keys))
        await asyncio.to_thread(_delete_chunks, self._store, keys)
        await self._catalog.forget_orphans(keys)

    async def idle(self) -> None:
        """Wait until every queued document is ready or failed."""
        await self._queue.join()

    async def complete(self, document_id: str) -> None:
        """Store again the chunks of a ready document that the store has lost.

        Raises:
            EngineError: they could not be stored.
        """
        try:
            await self._bank.store_missing(await self._catalog.document_passages(document_id), lambda: None)
        except ExceptionGroup as errors:
            raise EngineError(f"lost chunks could not be stored again: {_reason(errors)}") from errors

    def restore(self, passages: Sequence[Passage]) -> None:
        """Store again, in the background, the chunks of `passages` that the store has lost."""
        task = asyncio.create_task(self._bank.store_missing(passages, lambda: None))
        self._restoring.add(task)
        task.add_done_callback(self._restored)

    def _restored(self, task: asyncio.Task[None]) -> None:
        self._restoring.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("lost chunks could not be stored again: %s", error)

    async def _work(self) -> None:
        while True:
            document_id = await self._queue.get()
            task = self._running[document_id] = asyncio.create_task(self._ingest(document_id))
            try:
                await asyncio.wait([task])
            finally:
                del self._running[document_id]
                self._queue.task_done()

    async def _ingest(self, document_id: str) -> None:
        try:
            document = await self._catalog.get(document_id)
            await self._make_ready(document)
            INGESTED_DOCUMENTS.labels("ready").inc()
        except UnknownDocument:
            logger.info("document %s was deleted while it was being added", document_id)
        except Exception as error:
            log = logger.info if isinstance(error, DocumentError) else logger.exception
            log("document %s failed: %s", document_id, error)
            INGESTED_DOCUMENTS.labels("failed").inc()
            with suppress(UnknownDocument):
                await self._catalog.fail(document_id, _reason(error))

    async def _make_ready(self, document: Document) -> None:
        document = await self._parse(document)
        await self._catalog.advance(document.id, Stage.EMBEDDING)
        passages = await self._made_so_far(document)
        texts = [f"{passage.title}\n{passage.text}" for passage in passages]
        embeddings = await asyncio.to_thread(self._embedder.embed, texts)
        tokens = sum(len(passage.token_ids) for passage in passages)
        progress = _Progress(self._catalog, document.id, len(passages), tokens)
        await progress.report()
        await self._bank.store_missing(passages, progress.advance)
        await progress.settled()
        while (between := await self._catalog.obsolete(document.id)) is not None:
            await self.delete(between)
        await self._catalog.complete(document.id, passages, embeddings)
        if document.replaces is not None:
            await self._drop_orphans()
        INGESTED_TOKENS.inc(tokens)
        self.tokens_done += tokens

    async def _parse(self, document: Document) -> Document:
        """Turn the uploaded file into text, unless that is done."""
        content = await self._catalog.upload(document.id)
        if content is None:
            return document
        await self._catalog.advance(document.id, Stage.PARSING)
        limit = self._max_document_bytes
        parsed = await asyncio.to_thread(parse_document, document.filename, content, limit)
        return await self._catalog.parsed(document.id, parsed)

    async def _made_so_far(self, document: Document) -> list[Passage]:
        """Make a document's passages, those of the version that it replaces kept where they still hold."""
        source = await self._catalog.source(document.id)
        old = await self._catalog.document_passages(document.replaces) if document.replaces else []
        return await asyncio.to_thread(self._maker.make, document, source, old)


class _Progress:
    """Counts a document's finished passages into the catalogue, without one write per passage."""

    def __init__(self, catalog: Catalog, document_id: str, passages: int, tokens: int) -> None:
        self._catalog = catalog
        self._document_id = document_id
        self._passages = passages
        self._tokens = tokens
        self._done = 0
        self._write: asyncio.Task[None] | None = None

    def advance(self) -> None:
        self._done += 1
        if self._write is None or self._write.done():
            self._write = asyncio.create_task(self.report())

    async def settled(self) -> None:
        """Wait for the last write, so that none comes after the document is ready."""
        if self._write is not None:
            await self._write

    async def report(self) -> None:
        await self._catalog.advance(self._document_id, Stage.PRECOMPUTING, self._passages, self._done, self._tokens)


def _delete_chunks(store: TieredStore, keys: Iterable[str]) -> None:
    for key in keys:
        store.delete(ChunkKey(key))


def _reason(error: BaseException) -> str:
    """Say in one line why a document failed."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
