"""Texts to embeddings."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

BATCH = 32


class Embedder:
    """A sentence-transformers model in a local folder; nothing is ever downloaded."""

    def __init__(self, model: Path, device: str = "cpu") -> None:
        self._model = SentenceTransformer(str(model), device=device, local_files_only=True)
        self._lock = threading.Lock()  # its tokenizer may not be entered by two threads

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, float32 `[texts, dimensions]`. Blocks; safe to call from several threads."""
        with self._lock:
            vectors = self._model.encode(
                list(texts), batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False
            )
        return np.asarray(vectors, dtype=np.float32)
