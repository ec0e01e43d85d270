"""The retriever that the settings describe."""

import logging
from collections.abc import Callable
from pathlib import Path

from app.config import Settings
from app.errors import ConfigError
from app.telemetry import RERANK_FAILURES
from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.errors import ScorerError
from cascade.pipeline import Retriever
from cascade.rerank import FallbackReranker, NoReranker, RelevanceScale, Reranker, ScorerReranker, ZSumReranker
from cascade.scorers import CrossEncoderScorer, MaxSimScorer, RerankServerScorer, Scorer
from cascade.select import GapSelector, Selector, TopKSelector

logger = logging.getLogger(__name__)

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
    maxsim, scale = MaxSimScorer(catalog.token_vectors), _scale(settings)
    zsum = ZSumReranker(maxsim, others, scale)
    if settings.reranker == "server":
        return FallbackReranker(ScorerReranker(maxsim, _server(settings), scale), zsum, _server_failed)
    if settings.reranker == "cross-encoder":
        return ScorerReranker(maxsim, _cross_encoder(settings), scale)
    return zsum


def _scale(settings: Settings) -> RelevanceScale:
    if settings.relevance_floor is not None:
        return RelevanceScale(settings.relevance_floor)
    return RelevanceScale() if settings.embedder is None else RelevanceScale(0.0)


def _server(settings: Settings) -> RerankServerScorer:
    if not settings.rerank_url:
        raise ConfigError("rerank_url (KVFUSE_RERANK_URL, --rerank-url): reranker server needs the server's address")
    key = settings.rerank_api_key.get_secret_value() if settings.rerank_api_key else ""
    return RerankServerScorer(settings.rerank_url, settings.rerank_model, key, settings.rerank_timeout_s)


def _server_failed(error: ScorerError) -> None:
    RERANK_FAILURES.inc()
    logger.warning("%s; zsum3 takes its place", error)


def _cross_encoder(settings: Settings) -> CrossEncoderScorer:
    folder = Path(settings.rerank_model).expanduser()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"rerank_model (KVFUSE_RERANK_MODEL, --rerank-model): reranker cross-encoder needs the folder of a model, "
            f"got {settings.rerank_model!r}"
        )
    return CrossEncoderScorer(folder)
