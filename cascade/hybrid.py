"""Dense and sparse search as one."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cascade.dense import DenseIndex
from cascade.sparse import SparseIndex, terms
from cascade.types import Hit, IndexedPassage

RRF_K = 60  # Cormack, Clarke, Buettcher 2009
DEPTH = 50  # how far down each ranking counts

T = TypeVar("T", bound=Hashable)


def reciprocal_rank_fusion(rankings: Sequence[Sequence[T]], k: int = RRF_K) -> list[tuple[T, float]]:
    """Merge rankings: an item scores the sum of `1 / (k + rank)`; equal scores keep the order of first appearance."""
    scores: defaultdict[T, float] = defaultdict(float)
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] += 1 / (k + rank)
    return sorted(scores.items(), key=lambda scored: -scored[1])


@dataclass(frozen=True)
class IndexEntry:
    """A passage as the index holds it."""

    passage_id: str
    document_id: str
    embedding: NDArray[np.float32]
    terms: list[str]

    @classmethod
    def of(cls, passage: IndexedPassage) -> "IndexEntry":
        """Title and text both count."""
        return cls(passage.id, passage.document_id, passage.embedding, terms(f"{passage.title}\n{passage.text}"))


class HybridIndex:
    """Immutable index over passages: searching needs no lock, a change is a new index."""

    def __init__(self, entries: Sequence[IndexEntry]) -> None:
        self._entries = entries
        if entries:
            self._dense = DenseIndex(np.stack([entry.embedding for entry in entries]))
            self._sparse = SparseIndex([entry.terms for entry in entries])

    def __len__(self) -> int:
        return len(self._entries)

    def search(
        self, question: str, vector: NDArray[np.float32], limit: int, document_ids: Collection[str] | None = None
    ) -> list[Hit]:
        """At most `limit` hits, best first; `vector` is the question's embedding `[dimensions]`.

        With `document_ids` only passages of these documents are found.
        """
        if not self._entries:
            return []
        allowed = None if document_ids is None else self._rows_of(set(document_ids))
        sparse = self._sparse.scores(terms(question))
        rankings = [self._dense.search(vector, DEPTH, allowed), _best_rows(sparse, DEPTH, allowed)]
        return [
            Hit(self._entries[row].passage_id, score, self._dense.score(vector, row), float(sparse[row]))
            for row, score in reciprocal_rank_fusion(rankings)[:limit]
        ]

    def _rows_of(self, document_ids: set[str]) -> NDArray[np.int64]:
        rows = [row for row, entry in enumerate(self._entries) if entry.document_id in document_ids]
        return np.array(rows, dtype=np.int64)


def _best_rows(scores: NDArray[np.float32], limit: int, allowed: NDArray[np.int64] | None) -> list[int]:
    """Rows that score at all, best first."""
    rows = np.arange(len(scores)) if allowed is None else allowed
    best = rows[np.argsort(-scores[rows], kind="stable")[:limit]]
    return [int(row) for row in best if scores[row] > 0]
