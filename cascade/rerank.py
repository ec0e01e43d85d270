"""The seam for an auxiliary model that looks at question and passage together."""

from collections.abc import Sequence
from typing import Protocol

from cascade.types import ScoredPassage


class Reranker(Protocol):
    """Puts candidates in a better order."""

    async def rerank(self, question: str, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
        """The same passages, most relevant first, `score` and `rank` renewed. Must not block the event loop."""
        ...


class NoReranker:
    """Keeps the order of the search."""

    async def rerank(self, question: str, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
        """The candidates as they came."""
        return candidates
