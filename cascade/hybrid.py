"""Dense and sparse search as one, over passages that come and go."""

import threading
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cascade.dense import EXACT_ROWS, DenseIndex, best
from cascade.packing import pack, unpack
from cascade.sparse import SparseIndex, terms
from cascade.token_vectors import Question
from cascade.types import Hit, IndexedPassage

RRF_K = 60  # Cormack, Clarke, Buettcher 2009
DEPTH = 50  # how far down each ranking counts
COMPACT_FROM = 1000  # removed rows; more than these, and more than half of all, are worth a new index

T = TypeVar("T", bound=Hashable)


def reciprocal_rank_fusion(rankings: Sequence[Sequence[T]], k: int = RRF_K) -> list[tuple[T, float]]:
    """Merge rankings: an item scores the sum of `1 / (k + rank)`; equal scores keep the order of first appearance."""
    scores: defaultdict[T, float] = defaultdict(float)
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] += 1 / (k + rank)
    return sorted(scores.items(), key=lambda scored: -scored[1])


class HybridIndex:
    """Passages by document. One thread changes it; any number may search meanwhile.

    Every search sees whole changes only. A change costs what the changed documents cost, not what the index holds.
    """

    def __init__(self, exact_rows: int = EXACT_ROWS) -> None:
        self._lock = threading.Lock()
        self._ids: list[str] = []
        self._documents: dict[str, range] = {}  # the rows of each
        self._alive = np.empty(0, dtype=bool)
        self._dense = DenseIndex(exact_rows)
        self._sparse = SparseIndex()

    def state(self) -> dict[str, NDArray[Any]]:
        """A copy of everything, for `restored`; searches wait for it."""
        with self._lock:
            own = {
                "ids": pack(self._ids),
                "alive": self._alive.copy(),
                "documents": pack(self._documents),
                "starts": np.array([rows.start for rows in self._documents.values()], dtype=np.int64),
                "stops": np.array([rows.stop for rows in self._documents.values()], dtype=np.int64),
            }
            return own | self._dense.state() | self._sparse.state()

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]], exact_rows: int = EXACT_ROWS) -> "HybridIndex":
        """The index that had this state."""
        index = cls(exact_rows)
        index._ids = unpack(state["ids"])
        index._alive = state["alive"]
        places = zip(unpack(state["documents"]), state["starts"].tolist(), state["stops"].tolist(), strict=True)
        index._documents = {id: range(start, stop) for id, start, stop in places}
        index._dense = DenseIndex.restored(state, exact_rows)
        index._sparse = SparseIndex.restored(state)
        return index

    def __len__(self) -> int:
        return sum(map(len, self._documents.values()))

    @property
    def documents(self) -> Collection[str]:
        """Ids of the documents that can be found."""
        return self._documents.keys()

    def add(self, passages: Sequence[IndexedPassage]) -> None:
        """Add passages, each document's together; they join those that the index holds of the same document last."""
        words = [terms(f"{passage.title}\n{passage.text}") for passage in passages]
        vectors = np.stack([passage.embedding for passage in passages])
        with self._lock:
            start = len(self._ids)
            self._ids += [passage.id for passage in passages]
            self._alive = np.concatenate([self._alive, np.ones(len(passages), dtype=bool)])
            self._dense.append(vectors)
            for row_words in words:
                self._sparse.add(row_words)
            for document_id, group in groupby(enumerate(passages, start), lambda numbered: numbered[1].document_id):
                rows = [row for row, _ in group]
                first = self._documents.get(document_id, range(rows[0], rows[0])).start
                self._documents[document_id] = range(first, rows[-1] + 1)
        if (graph := self._dense.build()) is not None:
            with self._lock:
                self._dense.use(graph)

    def remove(self, document_ids: Iterable[str]) -> None:
        """Forget documents; ids that the index does not hold are passed over."""
        with self._lock:
            for document_id in document_ids:
                rows = self._documents.pop(document_id, range(0))
                self._alive[rows.start : rows.stop] = False
                for row in rows:
                    self._sparse.remove(row)

    @property
    def is_wasteful(self) -> bool:
        """Whether most rows are removed ones, so that building anew saves memory and time."""
        removed = len(self._ids) - len(self)
        return removed > max(COMPACT_FROM, len(self))

    def search(self, question: Question, limit: int, document_ids: Collection[str] | None = None) -> list[Hit]:
        """At most `limit` hits, best first; with `document_ids` only passages of these documents are found."""
        with self._lock:
            allowed = self._rows_of(document_ids)
            if not len(allowed):
                return []
            sparse = self._sparse.scores(terms(question.text))
            by_words = [int(allowed[at]) for at in best(sparse[allowed], DEPTH)]
            rankings = [
                self._dense.search(question.vector, DEPTH, allowed),
                [row for row in by_words if sparse[row] > 0],
            ]
            fused = reciprocal_rank_fusion(rankings)[:limit]
            cosines = self._dense.scores(question.vector, [row for row, _ in fused])
            return [
                Hit(self._ids[row], score, float(cosine), float(sparse[row]))
                for (row, score), cosine in zip(fused, cosines, strict=True)
            ]

    def idf(self, words: Sequence[str]) -> NDArray[np.float32]:
        """How rare each word is among the passages, float32 `[words]`; 0 for ""."""
        with self._lock:
            return self._sparse.idf(words)

    def _rows_of(self, document_ids: Collection[str] | None) -> NDArray[np.int64]:
        if document_ids is None:
            return np.flatnonzero(self._alive)
        rows = chain.from_iterable(self._documents.get(id, ()) for id in dict.fromkeys(document_ids))
        return np.fromiter(rows, dtype=np.int64)
