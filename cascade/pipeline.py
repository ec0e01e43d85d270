"""From a question to its Selection."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cascade.catalog import Catalog
from cascade.dense import EXACT_ROWS
from cascade.embed import Embedder
from cascade.hybrid import HybridIndex
from cascade.rerank import Reranker, ZSumReranker
from cascade.scorers import MaxSimScorer
from cascade.select import GapSelector, Selector
from cascade.token_vectors import Question, similarity
from cascade.types import Hit, ScoredPassage, Selection

CANDIDATES = 20  # passed from search to the reranker


class Retriever:
    """Searches the ready documents of a catalogue, keeping an index over them in memory.

    Each search first brings the index up to date with the catalogue, whichever process changed it, so a document can
    be found from the moment it is ready and never again once it is deleted. For one event loop; heavy work is done in
    threads. `reranker` is called with the question and the search's candidates, `selector` with the most passages and
    tokens that a question may have.
    """

    def __init__(
        self,
        catalog: Catalog,
        embedder: Embedder,
        reranker: Reranker | None = None,
        selector: Callable[[int, int], Selector] = GapSelector,
        exact_rows: int = EXACT_ROWS,
    ) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._reranker = reranker or ZSumReranker(MaxSimScorer(catalog.token_vectors))
        self._selector = selector
        self._exact_rows = exact_rows
        self._index = HybridIndex(exact_rows)
        self._known: dict[str, int] = {}  # documents in the index, each with the revision at which it became ready
        self._revision = 0
        self._turn = asyncio.Lock()
        self._refreshing: set[asyncio.Task[None]] = set()

    async def refresh(self) -> None:
        """Bring the index up to date; cheap when nothing changed. Searching does it by itself."""
        # A task of its own: a search given up halfway must not leave half a change behind.
        task = asyncio.create_task(self._refresh())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)
        await asyncio.shield(task)

    async def question(self, text: str) -> Question:
        """Embed a question; its words weigh what they tell apart among the passages in the index."""
        question = await asyncio.to_thread(self._embedder.question, text)
        return replace(question, weights=self._index.idf(question.words))

    async def similarities(self, question: str, texts: Sequence[str]) -> list[float]:
        """Late interaction of a question with texts that need not be in the catalogue, each from 0 to 1."""
        asked = await self.question(question)
        made = await asyncio.to_thread(self._embedder.embed, texts)
        scores = await asyncio.to_thread(similarity, asked, [embedding.tokens for embedding in made])
        return [min(1.0, max(0.0, float(score))) for score in scores]

    async def search(
        self, question: str, k: int, token_budget: int, document_ids: Collection[str] | None = None
    ) -> Selection:
        """Select at most `k` passages of at most `token_budget` tokens, of the given documents or of all.

        Timings are of the stages refresh, embed, search, load, rerank, select.
        """
        timings: dict[str, float] = {}
        ranked = await self.rank(question, document_ids, timings)
        with _timed(timings, "select"):
            selection = self._selector(k, token_budget).select(ranked)
        return replace(selection, timings_ms=timings)

    async def rank(
        self,
        question: str,
        document_ids: Collection[str] | None = None,
        timings: dict[str, float] | None = None,
        limit: int = CANDIDATES,
    ) -> Sequence[ScoredPassage]:
        """At most `limit` candidates, most relevant first; notes in `timings` each stage's milliseconds."""
        timings = {} if timings is None else timings
        with _timed(timings, "refresh"):
            await self.refresh()
        with _timed(timings, "embed"):
            asked = await self.question(question)
        with _timed(timings, "search"):
            hits = await asyncio.to_thread(self._index.search, asked, limit, document_ids)
        with _timed(timings, "load"):
            candidates = await self._load(hits)
        with _timed(timings, "rerank"):
            return await self._reranker.rerank(asked, candidates)

    async def _refresh(self) -> None:
        async with self._turn:
            revision = await self._catalog.revision()
            if revision == self._revision:
                return
            if self._index.is_wasteful:
                await self._renew(revision)
            else:
                await self._update(self._index, revision)

    async def _update(self, index: HybridIndex, revision: int) -> None:
        ready = await self._catalog.ready()
        # Also what an earlier refresh, ended by an error, added without noting it.
        gone = [id for id in index.documents if self._known.get(id, -1) != ready.get(id)]
        await asyncio.to_thread(index.remove, gone)
        async for passages in self._catalog.indexed_between(self._revision, revision):
            await asyncio.to_thread(index.add, passages)
        self._known = {id: at for id, at in ready.items() if at <= revision}
        self._revision = revision

    async def _renew(self, revision: int) -> None:
        """Replace the index by one without the room that removed passages take; searches go on in the old one."""
        self._known, self._revision = {}, 0
        fresh = HybridIndex(self._exact_rows)
        await self._update(fresh, revision)
        self._index = fresh

    async def _load(self, hits: Sequence[Hit]) -> list[ScoredPassage]:
        """The hits' passages from the catalogue, which leaves out what was deleted meanwhile."""
        by_id = {hit.passage_id: hit for hit in hits}
        found = await self._catalog.passages(list(by_id))
        scored = [(passage, by_id[passage.id]) for passage in found]
        return [
            ScoredPassage(passage, hit.score, hit.dense_score, hit.sparse_score, rank)
            for rank, (passage, hit) in enumerate(scored, start=1)
        ]


@contextmanager
def _timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[stage] = (time.perf_counter() - start) * 1000
