"""The packaged embedding model, as the cascade uses it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cascade.embed import Embedder


def test_vectors_are_unit_float32(embedder: Embedder) -> None:
    vectors = embedder.embed(["one text", "another", ""])
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_nearness_is_meaning(embedder: Embedder) -> None:
    question, answer, stranger = embedder.embed(
        [
            "How long is annual leave kept?",
            "Unused vacation expires after a year.",
            "The train leaves from track 9.",
        ]
    )
    assert question @ answer > question @ stranger + 0.1


def test_threads_get_their_own_vectors(embedder: Embedder) -> None:
    texts = [f"text about subject {n}" for n in range(12)]
    alone = embedder.embed(texts)
    with ThreadPoolExecutor(6) as pool:
        together = np.concatenate(list(pool.map(lambda text: embedder.embed([text]), texts)))
    np.testing.assert_allclose(together, alone, atol=1e-5)
