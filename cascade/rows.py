"""Catalogue rows to values and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Row

from cascade.schema import documents, passages
from cascade.types import Document, IndexedPassage, MediaType, Passage, Stage

DOCUMENT_COLUMNS = [column for column in documents.c if column.name not in ("seq", "text", "revision")]
PASSAGE_COLUMNS = [column for column in passages.c if column.name != "embedding"]
INDEX_COLUMNS = [passages.c[name] for name in ("id", "document_id", "title", "text", "embedding")]


def to_document(row: Row[Any]) -> Document:
    """A Document from a row of DOCUMENT_COLUMNS."""
    fields = dict(row._mapping)
    return Document(**fields | {"stage": Stage(row.stage), "media_type": MediaType(row.media_type)})


def to_passage(row: Row[Any]) -> Passage:
    """A Passage from a row of PASSAGE_COLUMNS."""
    token_ids = tuple(np.frombuffer(row.token_ids, dtype="<u4").tolist())
    return Passage(**dict(row._mapping) | {"token_ids": token_ids})


def to_indexed(row: Row[Any]) -> IndexedPassage:
    """An IndexedPassage from a row of INDEX_COLUMNS."""
    embedding = np.frombuffer(row.embedding, dtype="<f4")
    return IndexedPassage(**dict(row._mapping) | {"embedding": embedding})


def from_passages(made: Sequence[Passage], embeddings: NDArray[np.float32]) -> list[dict[str, Any]]:
    """Rows of the passages table; `embeddings` is `[passages, dimensions]`."""
    return [
        vars(passage)
        | {
            "token_ids": np.asarray(passage.token_ids, dtype="<u4").tobytes(),
            "embedding": np.ascontiguousarray(vector, dtype="<f4").tobytes(),
        }
        for passage, vector in zip(made, embeddings, strict=True)
    ]
