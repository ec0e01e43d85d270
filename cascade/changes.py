"""Changes to the catalogue as steps of a transaction, which the caller begins and ends."""

import hashlib
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Update, delete, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from cascade import rows
from cascade.errors import UnknownDocument
from cascade.schema import collection_documents, documents, orphans, passages, sources, state
from cascade.types import Document, MediaType, Stage


@dataclass(frozen=True)
class SourceFile:
    """A file of a folder: what tells, unread, whether it has changed."""

    path: str
    bytes: int
    mtime_ns: int


async def read_document(tx: AsyncConnection, document_id: str) -> Document:
    """A document; raises UnknownDocument."""
    query = select(*rows.DOCUMENT_COLUMNS).where(documents.c.id == document_id)
    row = (await tx.execute(query)).one_or_none()
    if row is None:
        raise UnknownDocument(document_id)
    return rows.to_document(row)


async def update_document(tx: AsyncConnection, document_id: str, values: dict[str, Any]) -> None:
    """Set columns of a document; raises UnknownDocument."""
    change = update(documents).where(documents.c.id == document_id).values(**values, updated_at=int(time.time()))
    if (await tx.execute(change)).rowcount == 0:
        raise UnknownDocument(document_id)


async def adopt_profile(tx: AsyncConnection, profile: str) -> None:
    """Queue every ready document again if the catalogue is of another profile."""
    changed = await tx.execute(
        update(state).where(state.c.profile != profile).values(profile=profile, revision=state.c.revision + 1)
    )
    if changed.rowcount:
        await tx.execute(delete(passages))
        await tx.execute(requeue(documents.c.stage == Stage.READY))


def content_hash(content: bytes) -> str:
    """By which equal documents are found."""
    return hashlib.sha256(content).hexdigest()


def new_row(filename: str, content: bytes, media_type: MediaType) -> dict[str, Any]:
    """The row of a new document."""
    now = int(time.time())
    return {
        "id": f"file-{secrets.token_hex(12)}",
        "sha256": content_hash(content),
        "filename": filename,
        "title": filename,
        "media_type": media_type,
        "bytes": len(content),
        "text": "",
        "stage": Stage.QUEUED,
        "created_at": now,
        "updated_at": now,
    }


async def supersede(tx: AsyncConnection, document: Document, source: SourceFile | None, replaces: str | None) -> bool:
    """Note where a document comes from, and what it is to replace once it is ready.

    That is `replaces`, or what its file held before. True when it was ready already, and the other one went at once.
    """
    old = replaces
    if source is not None:
        old = await tx.scalar(select(sources.c.document_id).where(sources.c.path == source.path))
        values = vars(source) | {"document_id": document.id}
        await tx.execute(sqlite.insert(sources).values(values).on_conflict_do_update(["path"], set_=values))
    if old is None or old == document.id:
        return False
    if document.stage is Stage.READY:
        await take_place(tx, document.id, old)
        return True
    await update_document(tx, document.id, {"replaces": old})
    return False


async def take_place(tx: AsyncConnection, document_id: str, old: str) -> None:
    """Put a document in the place of another one in every collection, and remove that one.

    Unless another file of a folder still holds it.
    """
    if not await is_in_folder(tx, old):
        member = update(collection_documents).where(collection_documents.c.document_id == old)
        await tx.execute(member.prefix_with("OR IGNORE").values(document_id=document_id))
        await remove_document(tx, old)


async def is_in_folder(tx: AsyncConnection, document_id: str) -> bool:
    """Whether a file of a folder holds this document."""
    return await tx.scalar(select(sources.c.path).where(sources.c.document_id == document_id).limit(1)) is not None


async def remove_document(tx: AsyncConnection, document_id: str) -> bool:
    """Remove a document, whose chunks become orphans; False if there is none.

    What it was to replace is left to the document that was to replace it.
    """
    inherited = select(documents.c.replaces).where(documents.c.id == document_id).scalar_subquery()
    await tx.execute(update(documents).where(documents.c.replaces == document_id).values(replaces=inherited))
    keys = await tx.scalars(select(passages.c.chunk_key).where(passages.c.document_id == document_id))
    await note_orphans(tx, list(keys))
    return bool((await tx.execute(delete(documents).where(documents.c.id == document_id))).rowcount)


async def note_orphans(tx: AsyncConnection, chunk_keys: Collection[str]) -> None:
    """Note chunks that may be in no document any more."""
    if chunk_keys:
        values = [{"chunk_key": key} for key in set(chunk_keys)]
        await tx.execute(sqlite.insert(orphans).on_conflict_do_nothing(), values)


def requeue(*which: ColumnElement[bool]) -> Update:
    """Queue these documents anew."""
    now = int(time.time())
    values = {"stage": Stage.QUEUED, "error": None, "passages": 0, "passages_done": 0, "tokens": 0, "updated_at": now}
    return update(documents).where(*which).values(values)
