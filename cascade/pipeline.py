"""From a question to its Selection."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cascade.catalog import Catalog
from cascade.dense import EXACT_ROWS
from cascade.embed import Embedder
from cascade.hybrid import HybridIndex
from cascade.rerank import Reranker, ZSumReranker
from cascade.saved_index import Indexed, load_index, save_index
from cascade.scorers import MaxSimScorer
from cascade.select import GapSelector, Selector
from cascade.token_vectors import Question, similarity
from cascade.types import Hit, ScoredPassage, Selection

logger = logging.getLogger(__name__)

CANDIDATES = 20  # passed from search to the reranker
SAVE_AFTER = 5000  # passages; as many are read again from the catalogue in about a second


class Retriever:
    """Searches the ready documents of a catalogue, keeping an index over them in memory.

    Each search first brings the index up to date with the catalogue, whichever process changed it, so a document can
    be found from the moment it is ready and never again once it is deleted. For one event loop; heavy work is done in
    threads. `reranker` is called with the question and the search's candidates, `selector` with the most passages and
    tokens that a question may have. With a file to keep it in, `saved`, the index need not be made anew at each start.
    """

    def __init__(
        self,
        catalog: Catalog,
        embedder: Embedder,
        reranker: Reranker | None = None,
        selector: Callable[[int, int], Selector] = GapSelector,
        exact_rows: int = EXACT_ROWS,
        saved: Path | None = None,
    ) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._reranker = reranker or ZSumReranker(MaxSimScorer(catalog.token_vectors))
        self._selector = selector
        self._exact_rows = exact_rows
        self._now = self._empty()
        self._saved = saved
        self._on_disk = self._now
        self._added = 0  # passages since the index was saved
        self._turn = asyncio.Lock()
        self._working: set[asyncio.Task[None]] = set()

    async def refresh(self) -> None:
        """Bring the index up to date; cheap when nothing changed. Searching does it by itself."""
        # A task of its own: a search given up halfway must not leave half a change behind.
        await asyncio.shield(self._start(self._refresh()))

    async def close(self) -> None:
        """Save the index, if it has changed."""
        await asyncio.gather(*self._working, return_exceptions=True)
        if self._now is not self._on_disk:
            await self._save()

    async def question(self, text: str) -> Question:
        """Embed a question; its words weigh what they tell apart among the passages in the index."""
        question = await asyncio.to_thread(self._embedder.question, text)
        return replace(question, weights=self._now.index.idf(question.words))

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
            hits = await asyncio.to_thread(self._now.index.search, asked, limit, document_ids)
        with _timed(timings, "load"):
            candidates = await self._load(hits)
        with _timed(timings, "rerank"):
            return await self._reranker.rerank(asked, candidates)

    async def _refresh(self) -> None:
        async with self._turn:
            revision = await self._catalog.revision()
            if self._now.revision == 0:
                await self._restore(revision)
            if revision == self._now.revision:
                return
            start = self._empty() if self._now.index.is_wasteful else self._now  # searches go on in the old one
            self._now = await self._updated(start, revision)
            if self._added > max(SAVE_AFTER, len(self._now.index) // 10):
                self._start(self._save())

    async def _updated(self, old: Indexed, revision: int) -> Indexed:
        ready = await self._catalog.ready()
        # Also what an earlier refresh, ended by an error, added without noting it.
        gone = [id for id in old.index.documents if old.known.get(id, -1) != ready.get(id)]
        await asyncio.to_thread(old.index.remove, gone)
        async for passages in self._catalog.indexed_between(old.revision, revision):
            await asyncio.to_thread(old.index.add, passages)
            self._added += len(passages)
        return Indexed(old.index, {id: at for id, at in ready.items() if at <= revision}, revision)

    def _empty(self) -> Indexed:
        return Indexed(HybridIndex(self._exact_rows), {}, 0)

    async def _restore(self, revision: int) -> None:
        if self._saved is None:
            return
        found = await asyncio.to_thread(load_index, self._saved, self._exact_rows)
        if found is not None and found.revision <= revision and found.holds(await self._catalog.ready()):
            self._now = self._on_disk = found

    async def _save(self) -> None:
        """Also while the index changes: what is newer than the noted revision is read again after loading."""
        now, self._added = self._now, 0
        if self._saved is None:
            return
        try:
            await asyncio.to_thread(save_index, now, self._saved)
            self._on_disk = now
        except OSError as error:
            logger.warning("the index cannot be saved: %s", error)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task

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
