"""The packaged embedding model, as the cascade uses it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from cascade.embed import Embedder
from cascade.token_vectors import similarity


def vectors_of(embedder: Embedder, *texts: str) -> NDArray[np.float32]:
    return np.stack([embedding.vector for embedding in embedder.embed(texts)])


def test_vectors_are_unit_float32(embedder: Embedder) -> None:
    vectors = vectors_of(embedder, "one text", "another", "")
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_nearness_is_meaning(embedder: Embedder) -> None:
    question, answer, stranger = vectors_of(
        embedder,
        "How long is annual leave kept?",
        "Unused vacation expires after a year.",
        "The train leaves from track 9.",
    )
    assert question @ answer > question @ stranger + 0.1


def test_the_order_of_texts_is_kept(embedder: Embedder) -> None:
    texts = ["a long text about clerks and their forms " * 5, "x", "a text about trains", ""] * 12
    together = vectors_of(embedder, *texts)
    np.testing.assert_allclose(together, np.concatenate([vectors_of(embedder, text) for text in texts]), atol=1e-5)


def test_threads_get_their_own_vectors(embedder: Embedder) -> None:
    texts = [f"text about subject {n}" for n in range(12)]
    alone = vectors_of(embedder, *texts)
    with ThreadPoolExecutor(6) as pool:
        together = np.concatenate(list(pool.map(lambda text: vectors_of(embedder, text), texts)))
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_a_question_knows_the_word_of_each_token(embedder: Embedder) -> None:
    question = embedder.question("Is the Übergangsregelung for 日本 in force?")
    assert set(question.words) == {"", "übergangsregelung", "日", "本", "force"}
    assert question.words.count("übergangsregelung") > 1, "a long word has several tokens"
    assert len(question.words) == len(question.tokens) == len(question.weights)
    np.testing.assert_allclose(np.linalg.norm(question.tokens, axis=1), 1, rtol=1e-5)


def test_a_question_and_a_passage_are_embedded_alike(embedder: Embedder) -> None:
    text = "Unused vacation expires after a year."
    question, (embedding,) = embedder.question(text), embedder.embed([text])
    np.testing.assert_allclose(question.vector, embedding.vector, atol=1e-5)
    assert similarity(question, [embedding.tokens])[0] == pytest.approx(1, abs=0.02)


def test_a_very_long_question_is_cut(embedder: Embedder) -> None:
    question = embedder.question("form " * 5000)
    assert len(question.words) == len(question.tokens) <= 512
