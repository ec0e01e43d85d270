"""Exact search by inner product."""

import faiss
import numpy as np
from numpy.typing import NDArray


class DenseIndex:
    """Unit vectors, float32 `[rows, dimensions]`, at least one; a hit is a row number. Immutable."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self._vectors = np.ascontiguousarray(vectors)
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(self._vectors)

    def search(self, query: NDArray[np.float32], limit: int, allowed: NDArray[np.int64] | None = None) -> list[int]:
        """At most `limit` rows, the nearest to `query` `[dimensions]` first; `allowed` rows only, where given."""
        parameters = None
        if allowed is not None:
            parameters = faiss.SearchParameters()
            parameters.sel = selector = faiss.IDSelectorBatch(allowed)  # noqa: F841 (the name keeps it alive)
        _, rows = self._index.search(query[np.newaxis], min(limit, len(self._vectors)), params=parameters)
        return [int(row) for row in rows[0] if row >= 0]

    def score(self, query: NDArray[np.float32], row: int) -> float:
        """Cosine of `query` and a row."""
        return float(self._vectors[row] @ query)
