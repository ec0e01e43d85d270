"""The catalogue of documents and passages: SQLite, shared by the processes of one machine."""

import hashlib
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Update, delete, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from cascade import rows, schema
from cascade.errors import ProfileChanged, UnknownDocument
from cascade.parse import ParsedDocument
from cascade.schema import documents, passages, state
from cascade.types import Document, IndexedPassage, Passage, Stage

IN_FLIGHT = (Stage.EMBEDDING, Stage.PRECOMPUTING)
SQL_BATCH = 1000  # values in one statement; SQLite allows 32,766


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
            async with engine.begin() as tx:
                await tx.run_sync(schema.prepare, profile)
                await _adopt_profile(tx, profile)
        except BaseException:
            await engine.dispose()
            raise
        return cls(engine, profile)

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    async def add(self, filename: str, content: bytes, parsed: ParsedDocument) -> AddResult:
        """Queue a document. The same content is the same document, whatever its name; a failed one gets another try."""
        now = int(time.time())
        row = {
            "id": f"file-{secrets.token_hex(12)}",
            "sha256": hashlib.sha256(content).hexdigest(),
            "filename": filename,
            "title": parsed.title,
            "media_type": parsed.media_type,
            "bytes": len(content),
            "text": parsed.text,
            "stage": Stage.QUEUED,
            "created_at": now,
            "updated_at": now,
        }
        same = documents.c.sha256 == row["sha256"]
        async with self._engine.begin() as tx:
            created = await tx.execute(sqlite.insert(documents).values(row).on_conflict_do_nothing(["sha256"]))
            retried = await tx.execute(_requeue().where(same, documents.c.stage == Stage.FAILED))
            found = (await tx.execute(select(*rows.DOCUMENT_COLUMNS).where(same))).one()
        outcome = Added.CREATED if created.rowcount else Added.RETRIED if retried.rowcount else Added.DUPLICATE
        return AddResult(rows.to_document(found), outcome)

    async def get(self, document_id: str) -> Document:
        """The document as it is now."""
        async with self._engine.connect() as tx:
            return await _document(tx, document_id)

    async def list(self, *stages: Stage) -> Sequence[Document]:
        """Documents in order of arrival, of the given stages or all."""
        query = select(*rows.DOCUMENT_COLUMNS).order_by(documents.c.seq)
        if stages:
            query = query.where(documents.c.stage.in_(stages))
        async with self._engine.connect() as tx:
            return [rows.to_document(row) for row in await tx.execute(query)]

    async def text(self, document_id: str) -> str:
        """The whole text of a document."""
        async with self._engine.connect() as tx:
            found = await tx.scalar(select(documents.c.text).where(documents.c.id == document_id))
        if found is None:
            raise UnknownDocument(document_id)
        return str(found)

    async def advance(self, document_id: str, stage: Stage, passages: int = 0, done: int = 0, tokens: int = 0) -> None:
        """Note how far the work on a document has come."""
        await self._update(document_id, stage=stage, error=None, passages=passages, passages_done=done, tokens=tokens)

    async def fail(self, document_id: str, reason: str) -> None:
        """Keep the document listed as failed, with the reason."""
        await self._update(document_id, stage=Stage.FAILED, error=reason)

    async def complete(self, document_id: str, made: Sequence[Passage], embeddings: NDArray[np.float32]) -> Document:
        """Store passages and embeddings `[passages, dimensions]`, and make the document ready, all at once."""
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
            await _update_document(tx, document_id, ready)
            await tx.execute(delete(passages).where(passages.c.document_id == document_id))
            await tx.execute(insert(passages), new_rows)
            return await _document(tx, document_id)

    async def delete(self, document_id: str) -> frozenset[str]:
        """Remove a document at any stage. Returns its passages' chunk keys; `unused_chunks` tells which may go too."""
        async with self._engine.begin() as tx:
            await self._next_revision(tx)
            keys = await tx.scalars(select(passages.c.chunk_key).where(passages.c.document_id == document_id))
            gone = await tx.execute(delete(documents).where(documents.c.id == document_id))
            if gone.rowcount == 0:
                raise UnknownDocument(document_id)
            return frozenset(keys)

    async def unused_chunks(self, chunk_keys: Collection[str]) -> frozenset[str]:
        """Those of the keys that no passage of a ready document has."""
        keys = list(chunk_keys)
        used: set[str] = set()
        async with self._engine.connect() as tx:
            for at in range(0, len(keys), SQL_BATCH):
                query = select(passages.c.chunk_key).where(passages.c.chunk_key.in_(keys[at : at + SQL_BATCH]))
                used.update(await tx.scalars(query))
        return frozenset(keys) - used

    async def resume(self) -> Sequence[Document]:
        """Queue again what a stopped process left in flight. Returns all queued documents, the oldest first."""
        async with self._engine.begin() as tx:
            await tx.execute(_requeue().where(documents.c.stage.in_(IN_FLIGHT)))
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

    async def indexed_since(self, revision: int) -> Sequence[IndexedPassage]:
        """What searching needs of the documents that became ready after `revision`, document by document."""
        query = select(*rows.INDEX_COLUMNS).join(documents).order_by(documents.c.seq, passages.c.ordinal)
        query = query.where(documents.c.stage == Stage.READY, documents.c.revision > revision)
        async with self._engine.connect() as tx:
            return [rows.to_indexed(row) for row in await tx.execute(query)]

    async def _update(self, document_id: str, **values: Any) -> None:
        async with self._engine.begin() as tx:
            await _update_document(tx, document_id, values)

    async def _next_revision(self, tx: AsyncConnection) -> int:
        """Also the first write of its transaction, which locks out other writers before anything is read."""
        change = update(state).where(state.c.profile == self._profile).values(revision=state.c.revision + 1)
        return self._own(await tx.scalar(change.returning(state.c.revision)))

    def _own(self, revision: int | None) -> int:
        if revision is None:
            raise ProfileChanged(f"the catalogue is no longer of profile {self._profile!r}; restart to go on")
        return revision


async def _document(tx: AsyncConnection, document_id: str) -> Document:
    query = select(*rows.DOCUMENT_COLUMNS).where(documents.c.id == document_id)
    row = (await tx.execute(query)).one_or_none()
    if row is None:
        raise UnknownDocument(document_id)
    return rows.to_document(row)


async def _update_document(tx: AsyncConnection, document_id: str, values: dict[str, Any]) -> None:
    change = update(documents).where(documents.c.id == document_id).values(**values, updated_at=int(time.time()))
    if (await tx.execute(change)).rowcount == 0:
        raise UnknownDocument(document_id)


async def _adopt_profile(tx: AsyncConnection, profile: str) -> None:
    changed = await tx.execute(
        update(state).where(state.c.profile != profile).values(profile=profile, revision=state.c.revision + 1)
    )
    if changed.rowcount:
        await tx.execute(delete(passages))
        await tx.execute(_requeue().where(documents.c.stage == Stage.READY))


def _requeue() -> Update:
    return update(documents).values(
        stage=Stage.QUEUED, error=None, passages=0, passages_done=0, tokens=0, updated_at=int(time.time())
    )
