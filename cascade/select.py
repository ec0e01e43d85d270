"""Which of the ranked candidates the main model gets to read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cascade.types import ScoredPassage, Selection

LOW_COSINE = 0.3  # of MiniLM: a question and a passage that answers it are above, strangers below


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
    low_cosine: float = LOW_COSINE

    def select(self, candidates: Sequence[ScoredPassage]) -> Selection:
        """See Selector."""
        chosen: list[ScoredPassage] = []
        left, passed_over = self.token_budget, 0
        for candidate in candidates:
            if len(chosen) == self.k:
                break
            tokens = len(candidate.passage.token_ids)
            if tokens > left:
                passed_over += 1
                continue
            chosen.append(candidate)
            left -= tokens
        return Selection(
            passages=tuple(chosen),
            rule=self._rule(passed_over),
            considered=len(candidates),
            low_relevance=all(passage.dense_score < self.low_cosine for passage in chosen),
        )

    def _rule(self, passed_over: int) -> str:
        rule = f"top {self.k} within {self.token_budget} tokens"
        return f"{rule}, {passed_over} passed over for size" if passed_over else rule
