"""The retriever that the settings describe."""

from collections.abc import Callable
from pathlib import Path

from app.config import Settings
from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.pipeline import Retriever
from cascade.rerank import NO_SIMILARITY, NoReranker, Reranker, ZSumReranker
from cascade.scorers import MaxSimScorer, Scorer
from cascade.select import GapSelector, Selector, TopKSelector

SELECTORS: dict[str, Callable[[int, int], Selector]] = {"gap": GapSelector, "top_k": TopKSelector}


def make_retriever(
    settings: Settings, catalog: Catalog, embedder: Embedder, lm: Scorer | None = None, saved: Path | None = None
) -> Retriever:
    """A retriever over a catalogue, its index still empty.

    `lm` scores by the main model, if it is to be asked; `saved` is the file that keeps the index over restarts.
    """
    others = (lm,) if lm is not None and settings.reranker == "zsum3+lm" else ()
    reranker = _reranker(settings, catalog, others)
    return Retriever(catalog, embedder, reranker, SELECTORS[settings.selector], saved=saved)


def _reranker(settings: Settings, catalog: Catalog, others: tuple[Scorer, ...]) -> Reranker:
    if settings.reranker == "none":
        return NoReranker()
    floor = settings.relevance_floor
    if floor is None:
        floor = NO_SIMILARITY if settings.embedder is None else 0.0
    return ZSumReranker(MaxSimScorer(catalog.token_vectors), others, none_below=floor)
