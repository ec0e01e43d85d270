"""Texts to embeddings, whole and token by token."""

import threading
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from cascade.sparse import term_spans
from cascade.token_vectors import Embedding, Question, TokenVectors

BATCH = 32


class Embedder:
    """A sentence-transformers model in a local folder; nothing is ever downloaded.

    Methods block and may be called from several threads. Texts beyond the model's length are cut.
    """

    def __init__(self, model: Path, device: str = "cpu") -> None:
        self._model = SentenceTransformer(str(model), device=device, local_files_only=True)
        self._lock = threading.Lock()  # its tokenizer may not be entered by two threads

    def embed(self, texts: Sequence[str]) -> list[Embedding]:
        """Embeddings in the order of the texts, made in one pass of the model each."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # like lengths share a batch
        made: dict[int, Embedding] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            vectors = self._encode([texts[index] for index in batch])
            made.update(
                (index, Embedding(whole, TokenVectors.of(of)))
                for index, (whole, of) in zip(batch, vectors, strict=True)
            )
        return [made[index] for index in range(len(texts))]

    def question(self, text: str) -> Question:
        """Embed a question, with the word of each of its tokens; all weigh the same."""
        ((vector, tokens),) = self._encode([text])
        return Question(text, vector, tokens, self._words(text, len(tokens)), np.ones(len(tokens), dtype=np.float32))

    def _encode(self, texts: list[str]) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        with self._lock:
            outputs = self._model.encode(texts, output_value=None, batch_size=BATCH, show_progress_bar=False)
        return [(_unit(output["sentence_embedding"][None])[0], _unit(_real_tokens(output))) for output in outputs]

    def _words(self, text: str, count: int) -> tuple[str, ...]:
        with self._lock:
            encoding: Any = self._model.tokenizer(
                text, return_offsets_mapping=True, truncation=True, max_length=self._model.max_seq_length
            )
        spans = list(term_spans(text))
        words = tuple(_word_at(spans, start, end) for start, end in encoding["offset_mapping"])
        return words if len(words) == count else ("",) * count


def _real_tokens(output: Any) -> Any:
    """Token vectors without those of the padding."""
    return output["token_embeddings"][output["attention_mask"].bool()]


def _unit(vectors: Any) -> NDArray[np.float32]:
    array = np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)
    unit: NDArray[np.float32] = array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)
    return unit


def _word_at(spans: Sequence[tuple[int, int, str]], start: int, end: int) -> str:
    """The term that the characters `[start, end)` belong to."""
    at = bisect_right(spans, start, key=lambda span: span[0]) - 1
    return spans[at][2] if start < end and at >= 0 and start < spans[at][1] else ""
