"""Puts the candidates of the search in a better order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

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
class ZSumReranker:
    """Sum of z-scores of dense and sparse search, MaxSim (which weighs most) and further scorers, then the title link.

    Relevance is MaxSim's: none below `none_below`, low below `low_below`; both depend on the embedding model.
    """

    maxsim: MaxSimScorer
    others: tuple[Scorer, ...] = ()
    none_below: float = NO_SIMILARITY
    low_below: float = LOW_SIMILARITY

    async def rerank(self, question: Question, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
        """See Reranker."""
        passages = [candidate.passage for candidate in candidates]
        similar = await self.maxsim.score(question, passages)
        by_name = {self.maxsim.name: similar}
        for scorer in self.others:
            by_name[scorer.name] = await scorer.score(question, passages)
        total = z_scores([candidate.dense_score for candidate in candidates])
        total = total + z_scores([candidate.sparse_score for candidate in candidates])
        total = total + MAXSIM_WEIGHT * z_scores(similar)
        total = sum((z_scores(by_name[scorer.name]) for scorer in self.others), total)
        scores = link_bonus(z_scores(total.tolist()), passages)
        judged = [
            replace(
                candidate,
                score=float(scores[at]),
                scores={name: float(values[at]) for name, values in by_name.items()},
                relevance=self._relevance(similar[at]),
            )
            for at, candidate in enumerate(candidates)
        ]
        ranked = sorted(judged, key=lambda candidate: -candidate.score)
        return [replace(candidate, rank=rank) for rank, candidate in enumerate(ranked, start=1)]

    def _relevance(self, similarity: float) -> Relevance:
        if similarity < self.none_below:
            return Relevance.NONE
        return Relevance.LOW if similarity < self.low_below else Relevance.GOOD
