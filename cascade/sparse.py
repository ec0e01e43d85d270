"""Search by words: BM25 over lower-cased words without English stop words."""

import re
from collections.abc import Sequence

import bm25s
import numpy as np
from bm25s.stopwords import STOPWORDS_EN
from numpy.typing import NDArray

# Chinese, Japanese and Korean have no spaces between words: each character counts as one.
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TERM = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_STOP_WORDS = frozenset(STOPWORDS_EN)


def terms(text: str) -> list[str]:
    """The words of a text that BM25 counts."""
    return [term for term in _TERM.findall(text.lower()) if term not in _STOP_WORDS]


class SparseIndex:
    """BM25 (Lucene's variant, k1 1.5, b 0.75) over rows of terms. Immutable."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self._rows = len(rows)
        self._bm25 = bm25s.BM25(method="lucene") if any(rows) else None
        if self._bm25:
            self._bm25.index([list(row) for row in rows], show_progress=False)

    def scores(self, query: Sequence[str]) -> NDArray[np.float32]:
        """BM25 score of every row, `[rows]`; 0 where no term of `query` occurs."""
        if not self._bm25 or not query:
            return np.zeros(self._rows, dtype=np.float32)
        return np.asarray(self._bm25.get_scores(list(query)), dtype=np.float32)
