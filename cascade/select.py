"""Which of the ranked candidates the main model gets to read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cascade.types import Relevance, ScoredPassage, Selection
from cascade.zscore import z_scores

GAP = 1.5  # standard deviations below the best candidate; from the measurements of 332 questions on four sets


class Selector(Protocol):
    """Cuts the candidates down to a Selection, without timings."""

    def select(self, candidates: Sequence[ScoredPassage]) -> Selection:
        """`candidates` come most relevant first, and so do the selected passages."""
        ...


@dataclass(frozen=True)
class TopKSelector:
    """The best `k` passages whose tokens together keep `token_budget`; one that does not fit is passed over."""

    k: int
    token_budget: int

    def select(self, candidates: Sequence[ScoredPassage]) -> Selection:
        """See Selector."""
        return _selection(candidates, candidates, self.k, self.token_budget, f"top {self.k}")


@dataclass(frozen=True)
class GapSelector:
    """The passages that score nearly as well as the best one: at least one, at most `k`, within `token_budget`.

    Nearly: at most `gap` standard deviations of the candidates' scores below. A question with one clear answer gets
    one passage, one that many passages touch gets more.
    """

    k: int
    token_budget: int
    gap: float = GAP

    def select(self, candidates: Sequence[ScoredPassage]) -> Selection:
        """See Selector."""
        scores = z_scores([candidate.score for candidate in candidates])
        near = [
            candidate for candidate, score in zip(candidates, scores, strict=True) if score >= max(scores) - self.gap
        ]
        rule = f"within {self.gap} standard deviations of the best, at most {self.k}"
        return _selection(candidates, near, self.k, self.token_budget, rule)


def _selection(
    candidates: Sequence[ScoredPassage], good: Sequence[ScoredPassage], k: int, token_budget: int, rule: str
) -> Selection:
    """Take the first `k` of the good ones that fit; none at all if no candidate is relevant."""
    found = {candidate.relevance for candidate in candidates}
    if candidates and found == {Relevance.NONE}:
        rule = f"none: all {len(candidates)} candidates are beside the question"
        return Selection((), rule, len(candidates), low_relevance=True, relevance=Relevance.NONE)
    chosen: list[ScoredPassage] = []
    left, passed_over = token_budget, 0
    for candidate in good:
        tokens = len(candidate.passage.token_ids)
        if len(chosen) == k:
            break
        if tokens > left:
            passed_over += 1
            continue
        chosen.append(candidate)
        left -= tokens
    rule += f", within {token_budget} tokens" + (f", {passed_over} passed over for size" if passed_over else "")
    low = Relevance.GOOD not in found
    relevance = Relevance.LOW if low else Relevance.GOOD
    return Selection(tuple(chosen), rule, len(candidates), low_relevance=low, relevance=relevance)
