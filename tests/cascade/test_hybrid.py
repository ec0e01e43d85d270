"""Dense, sparse and fused search against plain arithmetic."""

from collections.abc import Sequence
from typing import TypeVar

import bm25s
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cascade.dense import DenseIndex
from cascade.hybrid import COMPACT_FROM, HybridIndex, reciprocal_rank_fusion
from cascade.sparse import SparseIndex, terms
from cascade.token_vectors import Question
from cascade.types import IndexedPassage

T = TypeVar("T")
AXES = np.eye(4, dtype=np.float32)
WORDS = ["tax", "form", "train", "leave", "clerk", "the", "harbour"]


def passage(document_id: str, text: str, vector: NDArray[np.float32], ordinal: int = 0) -> IndexedPassage:
    return IndexedPassage(f"{document_id}-{ordinal}", document_id, document_id, text, vector)


def asked(text: str, vector: NDArray[np.float32]) -> Question:
    return Question(text, vector, vector[np.newaxis], ("",), np.ones(1, dtype=np.float32))


def unit(rows: int, seed: int = 0, dimensions: int = 32) -> NDArray[np.float32]:
    """Vectors in clusters, as those of texts are."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((max(rows // 100, 5), dimensions))
    vectors = centres[random.integers(0, len(centres), rows)] + 0.7 * random.standard_normal((rows, dimensions))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def index() -> HybridIndex:
    index = HybridIndex()
    index.add([passage("leave", "annual leave and sick leave", AXES[0])])
    index.add([passage("travel", "train fares and airports", AXES[1]), passage("phones", "passcodes", AXES[2])])
    return index


def dense(vectors: NDArray[np.float32], **options: int) -> DenseIndex:
    made = DenseIndex(**options)
    for part in np.array_split(vectors, 3):
        made.append(part)
    return made


def sparse(rows: Sequence[Sequence[str]]) -> SparseIndex:
    made = SparseIndex()
    for row in rows:
        made.add(row)
    return made


def test_dense_search_equals_sorting_by_inner_product() -> None:
    vectors = unit(200)
    query = vectors[7] + 0.1
    expected = np.argsort(-(vectors @ query), kind="stable")
    made = dense(vectors)
    assert made.search(query, 10, np.arange(200)) == expected[:10].tolist()
    assert made.search(query, 10, np.arange(0, 200, 3)) == [row for row in expected if row % 3 == 0][:10]
    assert made.scores(query, [7, 3]) == pytest.approx(vectors[[7, 3]] @ query)


def test_dense_search_gives_no_more_rows_than_there_are() -> None:
    assert dense(AXES).search(AXES[2], 50, np.array([1, 2])) == [2, 1]


def test_the_graph_finds_what_exact_search_finds() -> None:
    vectors = unit(20_000)
    graph, exact = dense(vectors, exact_rows=5000), dense(vectors)
    graph.use(not_none(graph.build()))
    graph.append(late := unit(500, seed=1))
    exact.append(late)
    rows = np.arange(20_500)
    removed = rows[rows % 7 != 0]
    for allowed in (rows, removed):
        shares = []
        for query in unit(50, seed=2):
            found, expected = graph.search(query, 50, allowed), exact.search(query, 50, allowed)
            assert set(found) <= set(allowed.tolist())
            shares.append(len(set(found) & set(expected)) / 50)
        assert np.mean(shares) > 0.95, shares
    assert graph.search(late[3], 1, rows) == [20_003]


def test_the_graph_is_built_once_above_the_limit() -> None:
    made = dense(unit(1000), exact_rows=1000)
    assert made.build() is None
    made.append(unit(1, seed=1))
    made.use(not_none(made.build()))
    assert made.build() is None


def not_none(value: T | None) -> T:
    assert value is not None
    return value


def test_bm25_follows_its_formula() -> None:
    rows = [["tax", "form", "tax"], ["form"], ["train"]]
    idf = np.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    length_part = 1.5 * (1 - 0.75 + 0.75 * 3 / (5 / 3))
    assert sparse(rows).scores(["tax"]) == pytest.approx([idf * 2 / (2 + length_part), 0, 0], rel=1e-5)


@given(
    rows=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=2, max_size=12),
    removed=st.sets(st.integers(0, 11)),
    query=st.lists(st.sampled_from([*WORDS, "unheard"]), min_size=1, max_size=5),
)
@settings(deadline=None)
def test_bm25_equals_bm25s_also_after_removals(rows: list[list[str]], removed: set[int], query: list[str]) -> None:
    kept = [row for row in range(len(rows)) if row not in removed]
    assume(kept)
    made = sparse(rows)
    for row in removed & set(range(len(rows))):
        made.remove(row)
        made.remove(row)
    reference = bm25s.BM25(method="lucene")
    reference.index([rows[row] for row in kept], show_progress=False)
    assert made.scores(query)[kept] == pytest.approx(reference.get_scores(query), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("rows", "query"), [([[], []], ["tax"]), ([["tax"]], []), ([["tax"]], ["unheard"]), ([], ["tax"])]
)
def test_bm25_of_nothing_is_nothing(rows: list[list[str]], query: list[str]) -> None:
    assert sparse(rows).scores(query).tolist() == [0] * len(rows)


def test_rare_words_weigh_more() -> None:
    unheard, rare, common, none = sparse([["form", "tax"], ["form"], ["form"]]).idf(["unheard", "tax", "form", ""])
    assert unheard > rare > common > none == 0


def test_words_in_capitals_are_names_not_stop_words() -> None:
    assert terms("Call the IT desk: it is open. A WHO office, or none") == [
        "call",
        "it",
        "desk",
        "open",
        "who",
        "office",
        "none",
    ]


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
    by_words = index.search(asked("passcodes", np.full(4, 0.5, np.float32)), 3)
    assert by_words[0].passage_id == "phones-0"
    assert by_words[0].sparse_score > 0
    by_meaning = index.search(asked("vacation", AXES[0]), 3)
    assert by_meaning[0].passage_id == "leave-0"
    assert (by_meaning[0].dense_score, by_meaning[0].sparse_score) == (1.0, 0.0)


def test_only_the_given_documents_are_found(index: HybridIndex) -> None:
    question = asked("annual leave", AXES[0])
    assert {hit.passage_id for hit in index.search(question, 3, ["travel", "phones", "none"])} == {
        "travel-0",
        "phones-0",
    }
    assert index.search(question, 3, []) == []


def test_an_empty_index_finds_nothing() -> None:
    assert HybridIndex().search(asked("anything", AXES[0]), 3) == []


def test_a_document_can_arrive_in_two_batches(index: HybridIndex) -> None:
    index.add([passage("rules", "harbour rules", AXES[3], 0)])
    index.add([passage("rules", "harbour fees", AXES[3], 1)])
    assert len(index.search(asked("harbour", AXES[3]), 5, ["rules"])) == 2
    index.remove(["rules", "unknown"])
    assert "rules" not in index.documents
    assert {hit.passage_id for hit in index.search(asked("harbour", AXES[3]), 5)} == {"leave-0", "travel-0", "phones-0"}


def test_adding_and_removing_ends_where_a_new_index_starts() -> None:
    texts = [" ".join(WORDS[n % 7 :]) for n in range(60)]
    vectors = unit(60)
    changed, fresh = HybridIndex(), HybridIndex()
    for n in range(60):
        changed.add([passage(f"d{n}", texts[n], vectors[n])])
        if n >= 20:
            changed.remove([f"d{n - 20}"])
    fresh.add([passage(f"d{n}", texts[n], vectors[n]) for n in range(40, 60)])
    assert len(changed) == len(fresh) == 20
    for query in vectors[:5]:
        ours, theirs = (index.search(asked("harbour clerk", query), 20) for index in (changed, fresh))
        assert [hit.passage_id for hit in ours] == [hit.passage_id for hit in theirs]
        assert [hit.sparse_score for hit in ours] == pytest.approx([hit.sparse_score for hit in theirs], rel=1e-5)


def test_an_index_of_mostly_removed_rows_is_wasteful() -> None:
    index = HybridIndex()
    vectors = unit(COMPACT_FROM + 3)
    index.add([passage(f"d{n}", "text", vector) for n, vector in enumerate(vectors)])
    index.remove([f"d{n}" for n in range(COMPACT_FROM)])
    assert not index.is_wasteful
    index.remove([f"d{COMPACT_FROM}"])
    assert index.is_wasteful
