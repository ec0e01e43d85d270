"""Late interaction over eight-bit vectors, against plain arithmetic."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cascade.token_vectors import Question, TokenVectors, similarity


def unit(tokens: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((tokens, 32)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def question(weights: list[float]) -> Question:
    tokens = unit(len(weights), 0)
    return Question("text", tokens[0], tokens, ("",) * len(weights), np.array(weights, dtype=np.float32))


def test_rounding_changes_cosines_little() -> None:
    vectors, others = unit(50, 1), unit(50, 2)
    rounded = TokenVectors.of(vectors)
    restored = rounded.codes * rounded.scales[:, np.newaxis].astype(np.float32)
    assert np.abs(restored @ others.T - vectors @ others.T).max() < 0.01


def test_bytes_and_back() -> None:
    made = TokenVectors.of(unit(7, 1))
    read = TokenVectors.from_bytes(made.to_bytes(), 32)
    np.testing.assert_array_equal(read.codes, made.codes)
    np.testing.assert_array_equal(read.scales, made.scales)
    assert len(made.to_bytes()) == 7 * 34


def test_torn_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="33 bytes"):
        TokenVectors.from_bytes(b"x" * 33, 32)


def test_scores_are_the_weighted_best_cosines() -> None:
    asked = question([1.0, 0.0, 3.0])
    passages = [unit(5, 1), unit(9, 2)]
    expected = [(asked.tokens @ passage.T).max(axis=1) @ np.array([0.25, 0, 0.75]) for passage in passages]
    scores = similarity(asked, [TokenVectors.of(passage) for passage in passages])
    assert scores == pytest.approx(expected, abs=0.01)


def test_a_passage_without_tokens_scores_nothing_and_moves_no_other() -> None:
    empty, full = TokenVectors.of(unit(0, 1)), TokenVectors.of(unit(4, 1))
    asked = question([1.0, 1.0])
    alone = similarity(asked, [full])[0]
    assert similarity(asked, [empty, full, empty]).tolist() == [0, alone, 0]
    assert similarity(asked, [empty]).tolist() == [0]
    assert similarity(asked, []).tolist() == []


def test_weights_that_are_all_zero_count_as_equal() -> None:
    passages = [TokenVectors.of(unit(4, 1))]
    assert similarity(question([0.0, 0.0]), passages) == pytest.approx(similarity(question([1.0, 1.0]), passages))
