"""Named groups of documents; a document may be in several, with attributes of its own in each."""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cascade import rows
from cascade.errors import UnknownCollection, UnknownDocument
from cascade.filters import EVERYTHING, Attributes, Filter
from cascade.schema import collection_documents as members
from cascade.schema import collections, documents
from cascade.types import Document


@dataclass(frozen=True)
class Collection:
    """A named group of documents. Times are Unix seconds; `active_at` is that of the last change or search."""

    id: str
    name: str
    metadata: Mapping[str, str]
    created_at: int
    active_at: int


@dataclass(frozen=True)
class Member:
    """A document in a collection."""

    document: Document
    attributes: Attributes
    created_at: int


class Collections:
    """The collections of a catalogue; every method is one transaction.

    Methods that name a collection raise UnknownCollection, those that name a document in it UnknownDocument.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def create(self, name: str, metadata: Mapping[str, str]) -> Collection:
        """A new, empty collection; names need not differ."""
        now = int(time.time())
        made = Collection(f"vs-{secrets.token_hex(12)}", name, metadata, now, now)
        async with self._engine.begin() as tx:
            await tx.execute(insert(collections).values(vars(made) | {"metadata": json.dumps(metadata)}))
        return made

    async def list(self) -> Sequence[Collection]:
        """Every collection, in order of creation."""
        async with self._engine.connect() as tx:
            return [_to_collection(row) for row in await tx.execute(select(collections).order_by(collections.c.seq))]

    async def get(self, collection_id: str) -> Collection:
        """One collection."""
        async with self._engine.connect() as tx:
            return await _collection(tx, collection_id)

    async def change(self, collection_id: str, name: str | None, metadata: Mapping[str, str] | None) -> Collection:
        """Give a collection another name or other metadata, where they are not None."""
        new: dict[str, Any] = {} if name is None else {"name": name}
        if metadata is not None:
            new["metadata"] = json.dumps(metadata)
        async with self._engine.begin() as tx:
            await _touch(tx, collection_id, **new)
            return await _collection(tx, collection_id)

    async def delete(self, collection_id: str) -> None:
        """Remove a collection; its documents stay."""
        async with self._engine.begin() as tx:
            if not (await tx.execute(delete(collections).where(collections.c.id == collection_id))).rowcount:
                raise UnknownCollection(collection_id)

    async def put(self, collection_id: str, document_id: str, attributes: Attributes) -> Member:
        """Add a document, or give one that is there other attributes."""
        async with self._engine.begin() as tx:
            await _touch(tx, collection_id)
            await _put(tx, collection_id, document_id, {"attributes": json.dumps(attributes)})
            return await _member(tx, collection_id, document_id)

    async def put_all(self, collection_id: str, attributes: Mapping[str, Attributes]) -> tuple[str, Sequence[Member]]:
        """Add documents, or give those that are there other attributes, all or none: a batch with an id of its own."""
        batch = f"vsfb-{secrets.token_hex(12)}"
        async with self._engine.begin() as tx:
            await _touch(tx, collection_id)
            for document_id, own in attributes.items():
                await _put(tx, collection_id, document_id, {"attributes": json.dumps(own), "batch": batch})
            found = await tx.execute(_members_of(collection_id, batch))
            return batch, [_to_member(row) for row in found]

    async def remove(self, collection_id: str, document_id: str) -> None:
        """Take a document out; it stays in the catalogue."""
        this = (members.c.collection_id == collection_id, members.c.document_id == document_id)
        async with self._engine.begin() as tx:
            await _touch(tx, collection_id)
            if not (await tx.execute(delete(members).where(*this))).rowcount:
                raise UnknownDocument(document_id)

    async def member(self, collection_id: str, document_id: str) -> Member:
        """One document of a collection."""
        async with self._engine.connect() as tx:
            await _collection(tx, collection_id)
            return await _member(tx, collection_id, document_id)

    async def members(
        self, collection_id: str, where: Filter = EVERYTHING, batch: str | None = None
    ) -> Sequence[Member]:
        """The documents of a collection, or of one batch in it, that pass a filter, in order of arrival."""
        async with self._engine.connect() as tx:
            await _collection(tx, collection_id)
            found = await tx.execute(_members_of(collection_id, batch))
            return [member for member in map(_to_member, found) if where.matches(member.attributes)]

    async def searched(self, collection_id: str) -> None:
        """Note that a collection is in use."""
        async with self._engine.begin() as tx:
            await _touch(tx, collection_id)


async def _collection(tx: AsyncConnection, collection_id: str) -> Collection:
    row = (await tx.execute(select(collections).where(collections.c.id == collection_id))).one_or_none()
    if row is None:
        raise UnknownCollection(collection_id)
    return _to_collection(row)


async def _touch(tx: AsyncConnection, collection_id: str, **values: Any) -> None:
    change = update(collections).where(collections.c.id == collection_id)
    if not (await tx.execute(change.values(active_at=int(time.time()), **values))).rowcount:
        raise UnknownCollection(collection_id)


async def _put(tx: AsyncConnection, collection_id: str, document_id: str, values: dict[str, str]) -> None:
    new = {"collection_id": collection_id, "document_id": document_id, "created_at": int(time.time()), **values}
    try:
        await tx.execute(sqlite.insert(members).values(new).on_conflict_do_update(set_=values))
    except IntegrityError:
        raise UnknownDocument(document_id) from None


async def _member(tx: AsyncConnection, collection_id: str, document_id: str) -> Member:
    row = (await tx.execute(_members_of(collection_id).where(documents.c.id == document_id))).one_or_none()
    if row is None:
        raise UnknownDocument(document_id)
    return _to_member(row)


def _members_of(collection_id: str, batch: str | None = None) -> Select[Any]:
    columns = members.c.attributes, members.c.created_at.label("added_at")
    joined = select(*rows.DOCUMENT_COLUMNS, *columns).join(members, members.c.document_id == documents.c.id)
    of_batch = [] if batch is None else [members.c.batch == batch]
    return joined.where(members.c.collection_id == collection_id, *of_batch).order_by(documents.c.seq)


def _to_collection(row: Any) -> Collection:
    return Collection(row.id, row.name, json.loads(row.metadata), row.created_at, row.active_at)


def _to_member(row: Any) -> Member:
    fields = dict(row._mapping)
    attributes, added_at = json.loads(fields.pop("attributes")), fields.pop("added_at")
    return Member(rows.document_of(fields), attributes, added_at)
