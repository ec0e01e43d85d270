"""Dense, sparse and fused search against plain arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.dense import DenseIndex
from cascade.hybrid import HybridIndex, IndexEntry, reciprocal_rank_fusion
from cascade.sparse import SparseIndex, terms

AXES = np.eye(4, dtype=np.float32)


def entry(name: str, text: str, vector: np.ndarray) -> IndexEntry:
    return IndexEntry(f"{name}-0", name, vector, terms(text))


@pytest.fixture
def index() -> HybridIndex:
    return HybridIndex(
        [
            entry("leave", "annual leave and sick leave", AXES[0]),
            entry("travel", "train fares and airports", AXES[1]),
            entry("phones", "passcodes of phones", AXES[2]),
        ]
    )


def test_dense_search_equals_sorting_by_inner_product() -> None:
    vectors = np.random.default_rng(1).standard_normal((200, 16)).astype(np.float32)
    query = vectors[7] + 0.1
    expected = np.argsort(-(vectors @ query))
    index = DenseIndex(vectors)
    assert index.search(query, 10) == expected[:10].tolist()
    allowed = np.arange(0, 200, 3)
    assert index.search(query, 10, allowed) == [row for row in expected if row % 3 == 0][:10]
    assert index.score(query, 7) == pytest.approx(float(vectors[7] @ query))


def test_dense_search_gives_no_more_rows_than_there_are() -> None:
    assert DenseIndex(AXES).search(AXES[2], 50, np.array([1, 2])) == [2, 1]


def test_bm25_follows_its_formula() -> None:
    rows = [["tax", "form", "tax"], ["form"], ["train"]]
    idf = np.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    length_part = 1.5 * (1 - 0.75 + 0.75 * 3 / (5 / 3))
    assert SparseIndex(rows).scores(["tax"]) == pytest.approx([idf * 2 / (2 + length_part), 0, 0], rel=1e-5)


@pytest.mark.parametrize(("rows", "query"), [([[], []], ["tax"]), ([["tax"]], []), ([["tax"]], ["unheard"])])
def test_bm25_of_nothing_is_nothing(rows: list[list[str]], query: list[str]) -> None:
    assert SparseIndex(rows).scores(query).tolist() == [0] * len(rows)


def test_terms() -> None:
    assert terms("The FY25 Form-3676, and 日本!") == ["fy25", "form", "3676", "日", "本"]


def test_fusion_by_hand() -> None:
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["c", "a"]])
    assert fused == [("a", 1 / 61 + 1 / 62), ("c", 1 / 63 + 1 / 61), ("b", 1 / 62)]


@given(st.lists(st.lists(st.integers(0, 20), unique=True), max_size=4))
def test_fusion_keeps_every_item_once_and_sorts(rankings: list[list[int]]) -> None:
    fused = reciprocal_rank_fusion(rankings)
    assert sorted(item for item, _ in fused) == sorted({item for ranking in rankings for item in ranking})
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True)


def test_words_and_meaning_both_lift(index: HybridIndex) -> None:
    by_words = index.search("passcodes", np.full(4, 0.5, np.float32), 3)
    assert by_words[0].passage_id == "phones-0"
    assert by_words[0].sparse_score > 0
    by_meaning = index.search("vacation", AXES[0], 3)
    assert by_meaning[0].passage_id == "leave-0"
    assert (by_meaning[0].dense_score, by_meaning[0].sparse_score) == (1.0, 0.0)


def test_only_the_given_documents_are_found(index: HybridIndex) -> None:
    hits = index.search("annual leave", AXES[0], 3, {"travel", "phones", "no such document"})
    assert {hit.passage_id for hit in hits} == {"travel-0", "phones-0"}
    assert index.search("annual leave", AXES[0], 3, set()) == []


def test_an_empty_index_finds_nothing() -> None:
    assert HybridIndex([]).search("anything", AXES[0], 3) == []
