"""Puts the candidates of the search in a better order."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cascade.errors import ScorerError
from cascade.link import link_bonus
from cascade.scorers import MaxSimScorer, Scorer
from cascade.token_vectors import Question
from cascade.types import Relevance, ScoredPassage
from cascade.zscore import z_scores

LOW_COSINE = 0.3  # of MiniLM: a question and a passage that answers it are above, strangers below
# Of normalised MaxSim over MiniLM. Best passage of 1,550: 71 questions about them 0.60 to 0.89, 260 questions about
# something else below 0.50 for 97 %, below 0.40 for 78 %.
NO_SIMILARITY, LOW_SIMILARITY = 0.40, 0.50
# More than dense and sparse search together. Between 2 and 3 little changes on the four sets; more is better for
# questions that one passage answers, less for those that need several.
MAXSIM_WEIGHT = 2.5


class Reranker(Protocol):
    """Puts candidates in a better order."""

    async def rerank(self, question: Question, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
        """The same passages, most relevant first, `score`, `rank` and `relevance` renewed.

        Must not block the event loop.
        """
        ...


class NoReranker:
    """Keeps the order of the search; relevance by cosine alone, which never rules a passage out."""

    async def rerank(self, question: Question, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
        """The candidates as they came."""
        return [
            replace(candidate, relevance=Relevance.GOOD if candidate.dense_score >= LOW_COSINE else Relevance.LOW)
            for candidate in candidates
        ]


@dataclass(frozen=True)
class RelevanceScale:
    """Relevance by MaxSim: none below `none_below`, low below `low_below`; both depend on the embedding model."""

    none_below: float = NO_SIMILARITY
    low_below: float = LOW_SIMILARITY

    def of(self, similarity: float) -> Relevance:
        """See Relevance."""
        if similarity < self.none_below:
            return Relevance.NONE
        return Relevance.LOW if similarity < self.low_below else Relevance.GOOD


@dataclass(frozen=True)
class ZSumReranker:
    """Sum of z-scores of dense and sparse search, MaxSim (weighing most) and further scorers, then the title link."""

    maxsim: MaxSimScorer
    others: tuple[Scorer, ...] = ()
    scale: RelevanceScale = RelevanceScale()

    async def rerank(self, question: Question, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
        """See Reranker."""
        passages = [candidate.passage for candidate in candidates]
        by_name = {scorer.name: await scorer.score(question, passages) for scorer in (self.maxsim, *self.others)}
        total = z_scores([candidate.dense_score for candidate in candidates])
        total = total + z_scores([candidate.sparse_score for candidate in candidates])
        total = total + MAXSIM_WEIGHT * z_scores(by_name[self.maxsim.name])
        total = sum((z_scores(by_name[scorer.name]) for scorer in self.others), total)
        return _ranked(candidates, total, by_name, by_name[self.maxsim.name], self.scale)


@dataclass(frozen=True)
class ScorerReranker:
    """The order of one scorer that knows better than search, such as a cross-encoder, then the title link.

    Raises what the scorer raises.
    """

    maxsim: MaxSimScorer
    scorer: Scorer
    scale: RelevanceScale = RelevanceScale()

    async def rerank(self, question: Question, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
        """See Reranker."""
        passages = [candidate.passage for candidate in candidates]
        by_name = {scorer.name: await scorer.score(question, passages) for scorer in (self.maxsim, self.scorer)}
        total = z_scores(by_name[self.scorer.name])
        return _ranked(candidates, total, by_name, by_name[self.maxsim.name], self.scale)


class FallbackReranker:
    """Another reranker's order while the first one fails, and for `pause_s` seconds after.

    `failed` is called with each ScorerError of the first.
    """

    def __init__(
        self, first: Reranker, other: Reranker, failed: Callable[[ScorerError], None], pause_s: float = 10.0
    ) -> None:
        self._first = first
        self._other = other
        self._failed = failed
        self._pause_s = pause_s
        self._not_before = -math.inf

    async def rerank(self, question: Question, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
        """See Reranker."""
        if time.monotonic() >= self._not_before:
            try:
                return await self._first.rerank(question, candidates)
            except ScorerError as error:
                self._not_before = time.monotonic() + self._pause_s
                self._failed(error)
        return await self._other.rerank(question, candidates)


def _ranked(
    candidates: Sequence[ScoredPassage],
    total: NDArray[np.float64],
    by_name: Mapping[str, Sequence[float]],
    similar: Sequence[float],
    scale: RelevanceScale,
) -> Sequence[ScoredPassage]:
    """The candidates by their `total`, the title link applied."""
    scores = link_bonus(z_scores(total.tolist()), [candidate.passage for candidate in candidates])
    judged = [
        replace(
            candidate,
            score=float(scores[at]),
            scores={name: float(values[at]) for name, values in by_name.items()},
            relevance=scale.of(similar[at]),
        )
        for at, candidate in enumerate(candidates)
    ]
    ranked = sorted(judged, key=lambda candidate: -candidate.score)
    return [replace(candidate, rank=rank) for rank, candidate in enumerate(ranked, start=1)]
