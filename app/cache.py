"""The stored K/V seen from outside: by document, chunk or tag, what is hot, what is cold, and verbs to change it."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.errors import InvalidRequest, NotFound
from cascade.errors import UnknownDocument
from cascade.types import Document, Passage
from store.control import VerbResult
from store.index import ChunkRecord
from store.keys import ChunkKey, parse_chunk_key
from store.stats import Contents, StoreStats
from store.tier import LookupResult
from store.tiered import TieredStore

VERBS: Mapping[str, tuple[str, ...]] = {
    "pin": ("ttl_s",),
    "unpin": (),
    "promote": ("tier", "ttl_s", "after_s"),
    "demote": ("tier", "after_s"),
    "prefetch": (),
    "evict": ("tier", "after_s"),
    "verify": (),
    "tag": ("tag",),
    "untag": ("tag",),
}
"""The verbs that act on a target, each with its `Options` besides `dry_run`: `Control` has methods of these names."""

MAX_CHUNKS = 100_000
"""Chunks that one request may act on."""

VERIFIED_AT_ONCE = 100


class Documents(Protocol):
    """What is needed of the catalogue."""

    async def get(self, document_id: str) -> Document:
        """One document; raises UnknownDocument."""
        ...

    async def list(self) -> Sequence[Document]:
        """All documents."""
        ...

    async def document_passages(self, document_id: str) -> Sequence[Passage]:
        """All passages of a document."""
        ...


@dataclass(frozen=True)
class Target:
    """The chunks that a verb is about: of documents, of tags, or named themselves."""

    documents: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """Options of the verbs; see `VERBS` for who has which. None is the verb's own default."""

    tier: str | None = None
    ttl_s: float | None = None
    after_s: float | None = None
    tag: str = ""
    dry_run: bool = False


@dataclass(frozen=True)
class DocumentUsage:
    """What a document's K/V costs and brings.

    Attributes:
        stored: passages of which some tier has the chunk; `tiers` counts them by their fastest tier.
        raw_bytes, stored_bytes: of the stored chunks, uncompressed and as files (each chunk once).
        last_used: seconds since the epoch, None for never stored.
        seconds_saved: prefill time that its chunks' hits saved.
    """

    id: str
    filename: str
    passages: int
    stored: int
    tiers: Mapping[str, int]
    raw_bytes: int
    stored_bytes: int
    last_used: float | None
    hits: int
    seconds_saved: float
    pinned: int


class Cache:
    """Verbs and views over a store and a catalogue; works without an engine, on the files."""

    def __init__(self, store: TieredStore, documents: Documents) -> None:
        self._store = store
        self._control = store.control
        self._documents = documents

    async def keys(self, target: Target) -> list[ChunkKey]:
        """The chunks of a target, each once.

        Raises:
            InvalidRequest: nothing is named, or a key is malformed, or it is too much at once.
            NotFound: a document does not exist.
        """
        if not (target.documents or target.keys or target.tags):
            raise InvalidRequest("name documents, keys or tags", param="keys")
        try:
            found = [parse_chunk_key(key) for key in target.keys]
        except ValueError as error:
            raise InvalidRequest(str(error), param="keys") from None
        for document_id in target.documents:
            found += await self._document_keys(document_id)
        for tag in target.tags:
            found += await asyncio.to_thread(self._control.tagged, tag)
        if len(found) > MAX_CHUNKS:
            raise InvalidRequest(f"{len(found)} chunks at once, the limit is {MAX_CHUNKS}", param="keys")
        return list(dict.fromkeys(found))

    async def act(self, verb: str, target: Target, options: Options) -> VerbResult:
        """Carry out a verb on a target.

        Raises:
            InvalidRequest: as `keys` does, or an option's value is none that the store knows.
            NotFound: a document does not exist.
        """
        if verb not in VERBS:
            raise InvalidRequest(f"verb {verb!r}: expected one of {', '.join(VERBS)}", param="verb")
        act: Callable[..., VerbResult] = getattr(self._control, verb)
        taken = {name: value for name in VERBS[verb] if (value := getattr(options, name)) is not None}
        try:
            return await asyncio.to_thread(act, await self.keys(target), **taken, dry_run=options.dry_run)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None

    async def verify_all(self, dry_run: bool) -> AsyncIterator[VerbResult]:
        """Verify every chunk that the index knows, some at a time."""
        after = ""
        while page := await self.ls(None, after, VERIFIED_AT_ONCE):
            after = page[-1].key
            keys = [record.key for record in page]
            yield await asyncio.to_thread(self._control.verify, keys, dry_run=dry_run)

    async def overview(self) -> tuple[StoreStats, Contents]:
        """The store as a whole."""
        return await asyncio.to_thread(lambda: (self._store.stats(), self._control.contents()))

    async def lookup(self, target: Target) -> dict[ChunkKey, LookupResult]:
        """The fastest tier of each chunk."""
        return await asyncio.to_thread(self._control.lookup, await self.keys(target))

    async def stat(self, target: Target) -> list[ChunkRecord]:
        """What is known of each chunk; chunks never stored are left out."""
        return await asyncio.to_thread(self._control.stat, await self.keys(target))

    async def ls(self, tier: str | None, after: str, limit: int) -> list[ChunkRecord]:
        """Chunks of one tier or all, in order of their keys."""
        return await asyncio.to_thread(self._control.ls, tier, after, limit)

    async def documents(self) -> list[DocumentUsage]:
        """Every document, in order of arrival."""
        return [await self._usage(document) for document in await self._documents.list()]

    async def document(self, document_id: str) -> DocumentUsage:
        """One document. Raises NotFound."""
        try:
            return await self._usage(await self._documents.get(document_id))
        except UnknownDocument:
            raise _no_document(document_id) from None

    async def purge(self) -> int:
        """Forget chunks that no tier holds; returns how many."""
        return await asyncio.to_thread(self._control.purge)

    async def rebuild_index(self) -> int:
        """Make the index agree with the files; returns the files found."""
        return await asyncio.to_thread(self._control.rebuild_index)

    async def _document_keys(self, document_id: str) -> list[ChunkKey]:
        try:
            await self._documents.get(document_id)
        except UnknownDocument:
            raise _no_document(document_id) from None
        return [ChunkKey(passage.chunk_key) for passage in await self._documents.document_passages(document_id)]

    async def _usage(self, document: Document) -> DocumentUsage:
        passages = await self._documents.document_passages(document.id)
        keys = list({ChunkKey(passage.chunk_key) for passage in passages})
        records = await asyncio.to_thread(self._control.stat, keys)
        held = [record for record in records if record.places]
        fastest = [next(tier.value for tier in LookupResult if tier.value in record.places) for record in held]
        return DocumentUsage(
            id=document.id,
            filename=document.filename,
            passages=len(passages),
            stored=len(held),
            tiers={tier: fastest.count(tier) for tier in dict.fromkeys(fastest)},
            raw_bytes=sum(record.raw_bytes for record in held),
            stored_bytes=sum(max(record.places.values()) for record in held),
            last_used=max((record.last_used for record in records), default=None),
            hits=sum(record.hits for record in records),
            seconds_saved=math.fsum(record.seconds_saved for record in records),
            pinned=sum(record.pinned_until is not None for record in records),
        )


def _no_document(document_id: str) -> NotFound:
    return NotFound(f"no such document: {document_id}", param="documents")
