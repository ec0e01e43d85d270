"""From a question to its Selection."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, groupby

from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.hybrid import HybridIndex, IndexEntry
from cascade.rerank import NoReranker, Reranker
from cascade.select import Selector, TopKSelector
from cascade.types import Hit, IndexedPassage, ScoredPassage, Selection

CANDIDATES = 20  # passed from search to the reranker


@dataclass(frozen=True)
class _View:
    """The catalogue's ready passages as of a revision, by document, and the index over them."""

    revision: int = 0
    documents: dict[str, list[IndexEntry]] = field(default_factory=dict)
    index: HybridIndex = field(default_factory=lambda: HybridIndex([]))


class Retriever:
    """Searches the ready documents of a catalogue, keeping an index over them in memory.

    Each search first brings the index up to date with the catalogue, whichever process changed it, so a document can
    be found from the moment it is ready and never again once it is deleted. For one event loop; heavy work is done in
    threads.
    """

    def __init__(
        self,
        catalog: Catalog,
        embedder: Embedder,
        reranker: Reranker | None = None,
        selector: Callable[[int, int], Selector] = TopKSelector,
    ) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._reranker = reranker or NoReranker()
        self._selector = selector
        self._view = _View()
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        """Bring the index up to date; cheap when nothing changed. Searching does it by itself."""
        async with self._refreshing:
            revision = await self._catalog.revision()
            if revision != self._view.revision:
                ready = await self._catalog.ready()
                fresh = await self._catalog.indexed_since(self._view.revision)
                self._view = await asyncio.to_thread(_next_view, self._view, revision, ready, fresh)

    async def search(
        self, question: str, k: int, token_budget: int, document_ids: Collection[str] | None = None
    ) -> Selection:
        """Select at most `k` passages of at most `token_budget` tokens, of the given documents or of all.

        Timings are of the stages refresh, embed, search, load, rerank, select.
        """
        timings: dict[str, float] = {}
        with _timed(timings, "refresh"):
            await self.refresh()
        with _timed(timings, "embed"):
            vector = (await asyncio.to_thread(self._embedder.embed, [question]))[0]
        with _timed(timings, "search"):
            hits = await asyncio.to_thread(self._view.index.search, question, vector, CANDIDATES, document_ids)
        with _timed(timings, "load"):
            candidates = await self._load(hits)
        with _timed(timings, "rerank"):
            ranked = await self._reranker.rerank(question, candidates)
        with _timed(timings, "select"):
            selection = self._selector(k, token_budget).select(ranked)
        return replace(selection, timings_ms=timings)

    async def _load(self, hits: Sequence[Hit]) -> list[ScoredPassage]:
        """The hits' passages from the catalogue, which leaves out what was deleted meanwhile."""
        by_id = {hit.passage_id: hit for hit in hits}
        found = await self._catalog.passages(list(by_id))
        scored = [(passage, by_id[passage.id]) for passage in found]
        return [
            ScoredPassage(passage, hit.score, hit.dense_score, hit.sparse_score, rank)
            for rank, (passage, hit) in enumerate(scored, start=1)
        ]


def _next_view(view: _View, revision: int, ready: dict[str, int], fresh: Sequence[IndexedPassage]) -> _View:
    kept = {id: entries for id, entries in view.documents.items() if id in ready}
    added = {id: [IndexEntry.of(passage) for passage in group] for id, group in groupby(fresh, lambda p: p.document_id)}
    documents = kept | added
    return _View(revision, documents, HybridIndex(list(chain.from_iterable(documents.values()))))


@contextmanager
def _timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[stage] = (time.perf_counter() - start) * 1000
