"""Catalogue rows to values and back."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Row

from cascade.parse import ParsedDocument
from cascade.schema import documents, passages
from cascade.token_vectors import Embedding, TokenVectors
from cascade.types import Document, IndexedPassage, MediaType, Passage, SourceText, Stage

_DOCUMENT_HIDDEN = ("seq", "text", "revision", "page_starts")
DOCUMENT_COLUMNS = [column for column in documents.c if column.name not in _DOCUMENT_HIDDEN]
PASSAGE_COLUMNS = [column for column in passages.c if column.name not in ("embedding", "token_vectors")]
INDEX_COLUMNS = [passages.c[name] for name in ("id", "document_id", "title", "text", "embedding")]


def to_document(row: Row[Any]) -> Document:
    """A Document from a row of DOCUMENT_COLUMNS."""
    return document_of(dict(row._mapping))


def document_of(fields: dict[str, Any]) -> Document:
    """A Document from the values of DOCUMENT_COLUMNS by name."""
    return Document(**fields | {"stage": Stage(fields["stage"]), "media_type": MediaType(fields["media_type"])})


def to_passage(row: Row[Any]) -> Passage:
    """A Passage from a row of PASSAGE_COLUMNS."""
    token_ids = tuple(np.frombuffer(row.token_ids, dtype="<u4").tolist())
    return Passage(**dict(row._mapping) | {"token_ids": token_ids})


def to_indexed(row: Row[Any]) -> IndexedPassage:
    """An IndexedPassage from a row of INDEX_COLUMNS."""
    embedding = np.frombuffer(row.embedding, dtype="<f4")
    return IndexedPassage(**dict(row._mapping) | {"embedding": embedding})


def to_source(row: Row[*tuple[Any, ...]]) -> SourceText:
    """A SourceText from a row with text and page_starts."""
    return SourceText(row.text, tuple(json.loads(row.page_starts)))


def to_token_vectors(row: Row[*tuple[Any, ...]]) -> TokenVectors:
    """TokenVectors from a row with embedding and token_vectors."""
    return TokenVectors.from_bytes(row.token_vectors, len(row.embedding) // 4)


def from_parsed(parsed: ParsedDocument) -> dict[str, Any]:
    """Columns of the documents table that parsing fills."""
    return {"title": parsed.title, "text": parsed.text, "page_starts": json.dumps(parsed.page_starts)}


def from_passages(made: Sequence[Passage], embeddings: Sequence[Embedding]) -> list[dict[str, Any]]:
    """Rows of the passages table."""
    return [
        vars(passage)
        | {
            "token_ids": np.asarray(passage.token_ids, dtype="<u4").tobytes(),
            "embedding": np.ascontiguousarray(embedding.vector, dtype="<f4").tobytes(),
            "token_vectors": embedding.tokens.to_bytes(),
        }
        for passage, embedding in zip(made, embeddings, strict=True)
    ]
