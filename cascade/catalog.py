"""The catalogue of documents and passages: SQLite, shared by the processes of one machine."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import AsyncFileLock
from sqlalchemy import ColumnElement, Select, delete, exists, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from cascade import changes, rows, schema
from cascade.changes import SourceFile
from cascade.collections import Collections
from cascade.errors import ProfileChanged, UnknownDocument
from cascade.migrate import prepare
from cascade.parse import ParsedDocument
from cascade.schema import documents, orphans, passages, sources, state, uploads
from cascade.token_vectors import Embedding, TokenVectors
from cascade.types import Document, IndexedPassage, MediaType, Passage, SourceText, Stage

IN_FLIGHT = (Stage.PARSING, Stage.EMBEDDING, Stage.PRECOMPUTING)
SQL_BATCH = 1000  # values in one statement; SQLite allows 32,766
INDEX_BATCH = 2000  # passages read at once to be indexed
_ALL = select(*rows.DOCUMENT_COLUMNS)


class Added(Enum):
    """What adding a document came to; CREATED and RETRIED documents are queued and wait for work."""

    CREATED = auto()
    RETRIED = auto()  # it was there, failed
    DUPLICATE = auto()  # it was there, in any other stage


@dataclass(frozen=True)
class AddResult:
    """The document that holds the content, which may have been there before."""

    document: Document
    outcome: Added


class Catalog:
    """Documents with their stage, and the passages of those that are ready.

    Every method is one transaction: after a crash each document is either ready with all its passages and embeddings,
    or visibly not ready without any. Methods that name a document raise UnknownDocument once it is deleted, so work
    under way on it ends there.
    """

    def __init__(self, engine: AsyncEngine, profile: str) -> None:
        self._engine = engine
        self._profile = profile

    @classmethod
    async def open(cls, path: Path, profile: str) -> "Catalog":
        """Open or create the file.

        `profile` names everything that passages depend on: model, tokenizer, splitting, embedder. Under another
        profile than last time all ready documents are queued again, as their passages no longer hold; processes that
        still use the other profile get ProfileChanged. Raises CatalogVersionError.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        schema.configure_connections(engine.sync_engine)
        try:
            # One at a time: alembic keeps the migration under way in a global, and switching a new file to WAL does
            # not wait for others.
            async with AsyncFileLock(path.with_name(f"{path.name}.lock")), engine.begin() as tx:
                await tx.run_sync(prepare, profile)
                await changes.adopt_profile(tx, profile)
        except BaseException:
            await engine.dispose()
            raise
        return cls(engine, profile)

    @classmethod
    def look(cls, path: Path, profile: str) -> "Catalog":
        """The file as it is, to be read only: nothing is created, migrated or queued.

        Methods raise sqlalchemy's OperationalError if there is no file, or one of another version of the program.
        """
        return cls(create_async_engine(f"sqlite+aiosqlite:///file:{quote(str(path))}?mode=ro&uri=true"), profile)

    @property
    def collections(self) -> Collections:
        """The groups that the documents are in."""
        return Collections(self._engine)

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    async def add(
        self,
        filename: str,
        content: bytes,
        media_type: MediaType,
        source: SourceFile | None = None,
        replaces: str | None = None,
        retry: bool = True,
    ) -> AddResult:
        """Queue a document. The same content is the same document, whatever its name.

        A failed one gets another try where `retry` says so. What the `source` file held before, or the document
        `replaces`, goes once the new one is ready.
        """
        row = changes.new_row(filename, content, media_type)
        same = documents.c.sha256 == row["sha256"]
        outcome = Added.DUPLICATE
        async with self._engine.begin() as tx:
            if (await tx.execute(sqlite.insert(documents).values(row).on_conflict_do_nothing(["sha256"]))).rowcount:
                outcome = Added.CREATED
                await tx.execute(insert(uploads).values(document_id=row["id"], content=content))
            elif retry and (await tx.execute(changes.requeue(same, documents.c.stage == Stage.FAILED))).rowcount:
                outcome = Added.RETRIED
            if replaces is not None:
                await changes.read_document(tx, replaces)
            found = rows.to_document((await tx.execute(_ALL.where(same))).one())
            if await changes.supersede(tx, found, source, replaces):
                await self._next_revision(tx)
            return AddResult(await changes.read_document(tx, found.id), outcome)

    async def retry(self, document_id: str) -> Document:
        """Queue a failed document again; one in any other stage stays as it is."""
        async with self._engine.begin() as tx:
            await tx.execute(changes.requeue(documents.c.id == document_id, documents.c.stage == Stage.FAILED))
            return await changes.read_document(tx, document_id)

    async def known(self, source: SourceFile) -> Document | None:
        """The document that holds this file's content, if the file is as it was when it was added."""
        return await self._held(
            sources.c.path == source.path, sources.c.bytes == source.bytes, sources.c.mtime_ns == source.mtime_ns
        )

    async def held(self, path: str) -> Document | None:
        """The document of what this file of a folder held when it was last added."""
        return await self._held(sources.c.path == path)

    async def find(self, content: bytes) -> Document | None:
        """The document of just this content."""
        return await self._found(_ALL.where(documents.c.sha256 == changes.content_hash(content)))

    async def get(self, document_id: str) -> Document:
        """The document as it is now."""
        async with self._engine.connect() as tx:
            return await changes.read_document(tx, document_id)

    async def obsolete(self, document_id: str) -> str | None:
        """The version that a document is to replace, where it never became ready and no file of a folder holds it."""
        old = documents.alias()
        query = select(old.c.id).join(documents, documents.c.replaces == old.c.id)
        async with self._engine.connect() as tx:
            found: str | None = await tx.scalar(query.where(documents.c.id == document_id, old.c.stage != Stage.READY))
            return None if found is None or await changes.is_in_folder(tx, found) else found

    async def list(self, *stages: Stage) -> Sequence[Document]:
        """Documents in order of arrival, of the given stages or all."""
        query = _ALL.order_by(documents.c.seq)
        if stages:
            query = query.where(documents.c.stage.in_(stages))
        async with self._engine.connect() as tx:
            return [rows.to_document(row) for row in await tx.execute(query)]

    async def source(self, document_id: str) -> SourceText:
        """The whole text of a document; empty before it is parsed."""
        query = select(documents.c.text, documents.c.page_starts).where(documents.c.id == document_id)
        async with self._engine.connect() as tx:
            row = (await tx.execute(query)).one_or_none()
        if row is None:
            raise UnknownDocument(document_id)
        return rows.to_source(row)

    async def upload(self, document_id: str) -> bytes | None:
        """The file itself; None once it is parsed."""
        async with self._engine.connect() as tx:
            await changes.read_document(tx, document_id)
            query = select(uploads.c.content).where(uploads.c.document_id == document_id)
            content: bytes | None = await tx.scalar(query)
            return content

    async def parsed(self, document_id: str, parsed: ParsedDocument) -> Document:
        """Keep a document's text in the place of its file."""
        async with self._engine.begin() as tx:
            await changes.update_document(tx, document_id, rows.from_parsed(parsed))
            await tx.execute(delete(uploads).where(uploads.c.document_id == document_id))
            return await changes.read_document(tx, document_id)

    async def advance(self, document_id: str, stage: Stage, passages: int = 0, done: int = 0, tokens: int = 0) -> None:
        """Note how far the work on a document has come."""
        await self._update(document_id, stage=stage, error=None, passages=passages, passages_done=done, tokens=tokens)

    async def fail(self, document_id: str, reason: str) -> None:
        """Keep the document listed as failed, with the reason."""
        await self._update(document_id, stage=Stage.FAILED, error=reason)

    async def complete(self, document_id: str, made: Sequence[Passage], embeddings: Sequence[Embedding]) -> Document:
        """Store passages with their embeddings and make the document ready, all at once.

        The document that it replaces goes in the same moment; the new one takes its place in every collection.
        """
        new_rows = rows.from_passages(made, embeddings)
        if not new_rows:
            raise ValueError(f"document {document_id!r} cannot be ready without a passage")
        async with self._engine.begin() as tx:
            ready = {
                "stage": Stage.READY,
                "error": None,
                "passages": len(made),
                "passages_done": len(made),
                "tokens": sum(len(passage.token_ids) for passage in made),
                "revision": await self._next_revision(tx),
            }
            old = (await changes.read_document(tx, document_id)).replaces
            if old is not None:
                await changes.take_place(tx, document_id, old)
            await changes.update_document(tx, document_id, ready | {"replaces": None})
            await tx.execute(delete(passages).where(passages.c.document_id == document_id))
            await tx.execute(insert(passages), new_rows)
            return await changes.read_document(tx, document_id)

    async def delete(self, document_id: str, chunk_keys: Collection[str] = ()) -> None:
        """Remove a document at any stage. Its chunks, and those of `chunk_keys`, are orphans from then on."""
        async with self._engine.begin() as tx:
            await self._next_revision(tx)
            if not await changes.remove_document(tx, document_id):
                raise UnknownDocument(document_id)
            await changes.note_orphans(tx, chunk_keys)

    async def orphans(self) -> Sequence[str]:
        """Chunk keys of deleted documents that no passage of a ready document has."""
        async with self._engine.begin() as tx:
            await tx.execute(delete(orphans).where(exists().where(passages.c.chunk_key == orphans.c.chunk_key)))
            return list(await tx.scalars(select(orphans.c.chunk_key)))

    async def forget_orphans(self, chunk_keys: Sequence[str]) -> None:
        """Note that these chunks are in no tier any more."""
        async with self._engine.begin() as tx:
            for at in range(0, len(chunk_keys), SQL_BATCH):
                await tx.execute(delete(orphans).where(orphans.c.chunk_key.in_(chunk_keys[at : at + SQL_BATCH])))

    async def resume(self) -> Sequence[Document]:
        """Queue again what a stopped process left in flight. Returns all queued documents, the oldest first."""
        async with self._engine.begin() as tx:
            await tx.execute(changes.requeue(documents.c.stage.in_(IN_FLIGHT)))
        return await self.list(Stage.QUEUED)

    async def passages(self, passage_ids: Sequence[str]) -> Sequence[Passage]:
        """The passages of these ids, in their order; those of deleted documents are left out."""
        query = select(*rows.PASSAGE_COLUMNS).where(passages.c.id.in_(passage_ids))
        async with self._engine.connect() as tx:
            found = {row.id: rows.to_passage(row) for row in await tx.execute(query)}
        return [found[passage_id] for passage_id in passage_ids if passage_id in found]

    async def document_passages(self, document_id: str) -> Sequence[Passage]:
        """All passages of a document in text order; none before it is ready."""
        query = select(*rows.PASSAGE_COLUMNS).where(passages.c.document_id == document_id).order_by(passages.c.ordinal)
        async with self._engine.connect() as tx:
            return [rows.to_passage(row) for row in await tx.execute(query)]

    async def revision(self) -> int:
        """A number that grows with every change to what can be searched, by any process."""
        async with self._engine.connect() as tx:
            return self._own(await tx.scalar(select(state.c.revision).where(state.c.profile == self._profile)))

    async def ready(self) -> dict[str, int]:
        """Ids of the ready documents, each with the revision at which it became ready."""
        query = select(documents.c.id, documents.c.revision).where(documents.c.stage == Stage.READY)
        async with self._engine.connect() as tx:
            return {row.id: row.revision for row in await tx.execute(query)}

    async def indexed_between(self, after: int, to: int) -> AsyncIterator[Sequence[IndexedPassage]]:
        """What searching needs of the documents that became ready after revision `after`, up to `to`, in batches.

        Document by document; a batch may end inside one.
        """
        query = select(*rows.INDEX_COLUMNS).join(documents).order_by(documents.c.seq, passages.c.ordinal)
        query = query.where(documents.c.stage == Stage.READY, documents.c.revision.between(after + 1, to))
        async with self._engine.connect() as tx:
            async for batch in (await tx.stream(query)).partitions(INDEX_BATCH):
                yield [rows.to_indexed(row) for row in batch]

    async def token_vectors(self, passage_ids: Sequence[str]) -> dict[str, TokenVectors]:
        """Token vectors of these passages by id; those of deleted documents are left out."""
        columns = passages.c.id, passages.c.embedding, passages.c.token_vectors
        async with self._engine.connect() as tx:
            found = await tx.execute(select(*columns).where(passages.c.id.in_(passage_ids)))
            return {row.id: rows.to_token_vectors(row) for row in found}

    async def _held(self, *which: ColumnElement[bool]) -> Document | None:
        return await self._found(_ALL.join(sources, sources.c.document_id == documents.c.id).where(*which))

    async def _found(self, query: Select[Any]) -> Document | None:
        async with self._engine.connect() as tx:
            row = (await tx.execute(query)).one_or_none()
        return None if row is None else rows.to_document(row)

    async def _update(self, document_id: str, **values: Any) -> None:
        async with self._engine.begin() as tx:
            await changes.update_document(tx, document_id, values)

    async def _next_revision(self, tx: AsyncConnection) -> int:
        """Also the first write of its transaction, which locks out other writers before anything is read."""
        change = update(state).where(state.c.profile == self._profile).values(revision=state.c.revision + 1)
        return self._own(await tx.scalar(change.returning(state.c.revision)))

    def _own(self, revision: int | None) -> int:
        if revision is None:
            raise ProfileChanged(f"the catalogue is no longer of profile {self._profile!r}; restart to go on")
        return revision
