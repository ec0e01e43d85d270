"""Library: collections of documents, and searching them without an answer."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import InvalidRequest, NotFound
from cascade.collections import Collection, Collections, Member
from cascade.errors import FilterError, UnknownCollection, UnknownDocument
from cascade.filters import EVERYTHING, Attributes, Filter
from cascade.types import ScoredPassage

if TYPE_CHECKING:
    from cascade.pipeline import Retriever

_COUNTED_STAGES = {"ready": "completed", "failed": "failed"}


@dataclass(frozen=True)
class Shelf:
    """A collection with its members."""

    collection: Collection
    members: Sequence[Member]

    @property
    def bytes(self) -> int:
        return sum(member.document.bytes for member in self.members)


@dataclass(frozen=True)
class Found:
    """One passage that a search found, and the document it is from."""

    member: Member
    scored: ScoredPassage
    relevance: float


class Library:
    """What the vector store and rerank routes ask for. Raises NotFound for what is not there."""

    def __init__(self, collections: Collections, retriever: "Retriever") -> None:
        self._collections = collections
        self._retriever = retriever

    async def create(self, name: str, metadata: Mapping[str, str], document_ids: Sequence[str]) -> Shelf:
        """A new collection of these documents; none is made if one of them is unknown."""
        made = await self._collections.create(name, metadata)
        try:
            for document_id in document_ids:
                await self.put(made.id, document_id, {})
        except NotFound:
            await self._collections.delete(made.id)
            raise
        return await self.get(made.id)

    async def list(self) -> Sequence[Shelf]:
        """Every collection, newest first."""
        return [await self.get(collection.id) for collection in reversed(await self._collections.list())]

    async def get(self, id: str) -> Shelf:
        with _named():
            return Shelf(await self._collections.get(id), await self._collections.members(id))

    async def change(self, id: str, name: str | None, metadata: Mapping[str, str] | None) -> Shelf:
        with _named():
            await self._collections.change(id, name, metadata)
        return await self.get(id)

    async def delete(self, id: str) -> None:
        with _named():
            await self._collections.delete(id)

    async def put(self, id: str, document_id: str, attributes: Attributes) -> Member:
        with _named():
            return await self._collections.put(id, document_id, attributes)

    async def put_all(self, id: str, attributes: Mapping[str, Attributes]) -> tuple[str, Sequence[Member]]:
        """Put these documents in together; the id of the batch and its members."""
        with _named():
            return await self._collections.put_all(id, attributes)

    async def batch(self, id: str, batch_id: str) -> Sequence[Member]:
        """The members that were put in together."""
        with _named():
            members = await self._collections.members(id, batch=batch_id)
        if not members:
            raise NotFound(f"no such file batch: {batch_id}", param="batch_id")
        return members

    async def member(self, id: str, document_id: str) -> Member:
        with _named():
            return await self._collections.member(id, document_id)

    async def remove(self, id: str, document_id: str) -> None:
        with _named():
            await self._collections.remove(id, document_id)

    async def members(self, ids: Sequence[str], where: Filter = EVERYTHING) -> dict[str, Member]:
        """Documents of several collections that pass a filter, by id."""
        with _named():
            found = [member for id in ids for member in await self._collections.members(id, where)]
        return {member.document.id: member for member in found}

    async def search(self, id: str, queries: Sequence[str], where: Filter, limit: int) -> Sequence[Found]:
        """Passages of a collection, most relevant first; for several queries each passage at its best."""
        members = await self.members([id], where)
        await self._collections.searched(id)
        best: dict[str, Found] = {}
        for query in queries:
            for scored in await self._retriever.rank(query, members.keys(), limit=limit):
                found = Found(members[scored.passage.document_id], scored, relevance_of(scored))
                held = best.get(scored.passage.id)
                best[scored.passage.id] = found if held is None else max(held, found, key=lambda each: each.relevance)
        if len(queries) == 1:
            return list(best.values())[:limit]
        return sorted(best.values(), key=lambda each: -each.relevance)[:limit]

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """How well each text answers the query, from about 0 to 1."""
        return await asyncio.shield(self._retriever.similarities(query, texts))


def counts_of(members: Sequence[Member]) -> dict[str, int]:
    """Members by OpenAI's statuses, and their total."""
    counts = dict.fromkeys(("in_progress", "completed", "failed", "cancelled"), 0)
    for member in members:
        counts[_COUNTED_STAGES.get(member.document.stage, "in_progress")] += 1
    return counts | {"total": len(members)}


def relevance_of(scored: ScoredPassage) -> float:
    """A score that can be compared between questions: late interaction, or the cosine where there is none."""
    return min(1.0, max(0.0, scored.scores.get("maxsim", scored.dense_score)))


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except UnknownCollection as error:
        raise NotFound(f"no such vector store: {error.collection_id}", param="vector_store_id") from None
    except UnknownDocument as error:
        raise NotFound(f"no such file: {error.document_id}", param="file_id") from None
    except FilterError as error:
        raise InvalidRequest(str(error), param="filters") from None
