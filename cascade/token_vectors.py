"""A passage's tokens as the embedder sees them, small enough to keep for every passage."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TokenVectors:
    """Unit vectors in eight bits: vector `i` is `codes[i] * scales[i]`.

    `codes` int8 `[tokens, dimensions]`, `scales` float16 `[tokens]`; 390 bytes a token with 384 dimensions.
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float16]

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> "TokenVectors":
        """Round unit vectors `[tokens, dimensions]`; changes a cosine by less than 0.01."""
        scales = (np.abs(vectors).max(axis=1, keepdims=True) / 127).astype(np.float16)
        codes = np.rint(vectors / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
        return cls(codes, scales[:, 0])

    def to_bytes(self) -> bytes:
        """For the catalogue: scales, then codes."""
        return self.scales.astype("<f2").tobytes() + self.codes.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, dimensions: int) -> "TokenVectors":
        """Read what `to_bytes` wrote; raises ValueError when it is not whole tokens of so many dimensions."""
        tokens, rest = divmod(len(data), dimensions + 2)
        if rest:
            raise ValueError(f"{len(data)} bytes are no token vectors of {dimensions} dimensions")
        codes = np.frombuffer(data, dtype=np.int8, offset=2 * tokens).reshape(tokens, dimensions)
        return cls(codes, np.frombuffer(data, dtype="<f2", count=tokens))


@dataclass(frozen=True)
class Embedding:
    """A passage's unit vector, float32 `[dimensions]`, and its tokens' vectors."""

    vector: NDArray[np.float32]
    tokens: TokenVectors


@dataclass(frozen=True)
class Question:
    """A question as the scorers see it.

    `vector` float32 `[dimensions]`; `tokens` float32 `[tokens, dimensions]`, unit vectors; `words` the term (as BM25
    counts it) that each token belongs to, "" for stop words and marks; `weights` float32 `[tokens]`, how much each
    token counts.
    """

    text: str
    vector: NDArray[np.float32]
    tokens: NDArray[np.float32]
    words: tuple[str, ...]
    weights: NDArray[np.float32]


def similarity(question: Question, passages: Sequence[TokenVectors]) -> NDArray[np.float32]:
    """Late interaction (ColBERT's MaxSim, Khattab and Zaharia 2020), weighted and normalised, float32 `[passages]`.

    Each token of the question counts with its best cosine in the passage. 1 means that every token occurs in just
    this sense, 0 is also the score of a passage without tokens.
    """
    scores = np.zeros(len(passages), dtype=np.float32)
    filled = [at for at, passage in enumerate(passages) if len(passage.codes)]
    if not filled:
        return scores
    weights = question.weights if question.weights.any() else np.ones_like(question.weights)
    codes = np.concatenate([passages[at].codes for at in filled]).astype(np.float32)
    scales = np.concatenate([passages[at].scales for at in filled]).astype(np.float32)
    cosines = (codes @ question.tokens.T) * scales[:, np.newaxis]
    starts = np.cumsum([0, *(len(passages[at].codes) for at in filled[:-1])])
    scores[filled] = np.maximum.reduceat(cosines, starts, axis=0) @ (weights / weights.sum())
    return scores
