"""Search by words: BM25 over lower-cased words without English stop words; in capitals (IT, WHO) they are names."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from bm25s.stopwords import STOPWORDS_EN
from numpy.typing import NDArray

from cascade.packing import pack, pieces, unpack

K1, B = 1.5, 0.75

# Chinese, Japanese and Korean have no spaces between words: each character counts as one.
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TERM = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_STOP_WORDS = frozenset(STOPWORDS_EN)


def terms(text: str) -> list[str]:
    """The words of a text that BM25 counts."""
    return [term for _, _, term in term_spans(text)]


def term_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and term of each word of `terms(text)`."""
    for match in _TERM.finditer(text):
        word = match.group()
        if (term := word.lower()) not in _STOP_WORDS or (len(word) > 1 and word.isupper()):
            yield match.start(), match.end(), term


class SparseIndex:
    """BM25 in Lucene's variant (k1 1.5, b 0.75), the same scores as bm25s, but rows can be added and removed.

    Rows are numbered in order of adding; removing one leaves its number unused. Not safe for concurrent use.
    """

    def __init__(self) -> None:
        self._term_ids: dict[str, int] = {}
        self._postings: list[tuple[array[int], array[int]]] = []  # of each term: rows, counts
        self._holders = array("l")  # of each term: how many rows hold it
        self._rows: list[NDArray[np.uint32] | None] = []  # of each row: its terms
        self._lengths = array("f")
        self._count = 0
        self._total = 0.0

    def state(self) -> dict[str, NDArray[Any]]:
        """A copy of everything, for `restored`."""
        return {
            "terms": pack(self._term_ids),
            "holders": np.array(self._holders, dtype=np.int64),
            "sizes": np.array([len(rows) for rows, _ in self._postings], dtype=np.int64),
            "rows": np.frombuffer(b"".join(rows for rows, _ in self._postings), dtype=np.uint32),
            "counts": np.frombuffer(b"".join(counts for _, counts in self._postings), dtype=np.uint32),
            "lengths": np.array(self._lengths, dtype=np.float32),
            "removed": np.array([held is None for held in self._rows], dtype=bool),
        }

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> "SparseIndex":
        """The index that had this state."""
        index = cls()
        rows, removed, lengths = state["rows"], state["removed"], state["lengths"]
        index._term_ids = {term: id for id, term in enumerate(unpack(state["terms"]))}
        postings = zip(pieces(rows, state["sizes"]), pieces(state["counts"], state["sizes"]), strict=True)
        index._postings = [(array("I", of.tobytes()), array("I", counted.tobytes())) for of, counted in postings]
        index._holders = array("l", state["holders"].tolist())
        terms_of = np.repeat(np.arange(len(state["sizes"]), dtype=np.uint32), state["sizes"])
        by_row = terms_of[np.argsort(rows, kind="stable")]
        held = pieces(by_row, np.bincount(rows, minlength=len(removed)))
        index._rows = [None if gone else terms for gone, terms in zip(removed, held, strict=True)]
        index._lengths = array("f", lengths.tobytes())
        index._count = int(np.count_nonzero(~removed))
        index._total = float(lengths[~removed].sum(dtype=np.float64))
        return index

    def add(self, row_terms: Sequence[str]) -> None:
        """Append a row."""
        row = len(self._rows)
        counts = Counter(self._term_id(term) for term in row_terms)
        for term, count in counts.items():
            rows, counted = self._postings[term]
            rows.append(row)
            counted.append(count)
            self._holders[term] += 1
        self._rows.append(np.fromiter(counts, dtype=np.uint32, count=len(counts)))
        self._lengths.append(len(row_terms))
        self._count += 1
        self._total += len(row_terms)

    def remove(self, row: int) -> None:
        """Let a row count no more, in statistics too. Its own score is then without meaning."""
        held = self._rows[row]
        if held is None:
            return
        for term in held:
            self._holders[term] -= 1
        self._rows[row] = None
        self._count -= 1
        self._total -= self._lengths[row]

    def scores(self, query: Sequence[str]) -> NDArray[np.float32]:
        """BM25 score of every row, `[rows]`; 0 where no term of `query` occurs."""
        scores = np.zeros(len(self._rows), dtype=np.float32)
        if not self._count:
            return scores
        norms = np.frombuffer(self._lengths, dtype=np.float32) * np.float32(B * self._count / max(self._total, 1))
        norms += np.float32(1 - B)
        for term, times in Counter(query).items():
            if (id := self._term_ids.get(term)) is None:
                continue
            rows = np.frombuffer(self._postings[id][0], dtype=np.uint32)
            counts = np.frombuffer(self._postings[id][1], dtype=np.uint32).astype(np.float32)
            scores[rows] += times * self._idf(id) * counts / (counts + np.float32(K1) * norms[rows])
        return scores

    def idf(self, words: Iterable[str]) -> NDArray[np.float32]:
        """How rare each word is, float32 `[words]`; 0 for "", most for a word that occurs nowhere."""
        ids = (self._term_ids.get(word) if word else -1 for word in words)
        return np.array([0.0 if id == -1 else self._idf(id) for id in ids], dtype=np.float32)

    def _idf(self, id: int | None) -> float:
        holders = 0 if id is None else self._holders[id]
        return float(np.log1p((self._count - holders + 0.5) / (holders + 0.5)))

    def _term_id(self, term: str) -> int:
        id = self._term_ids.setdefault(term, len(self._postings))
        if id == len(self._postings):
            self._postings.append((array("I"), array("I")))
            self._holders.append(0)
        return id
