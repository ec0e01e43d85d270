"""The values that travel through the cascade."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class MediaType(StrEnum):
    """The kinds of document that can be read."""

    TEXT = "text/plain"
    MARKDOWN = "text/markdown"
    HTML = "text/html"
    PDF = "application/pdf"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    CSV = "text/csv"

    @property
    def is_markdown(self) -> bool:
        """Whether the text of such a document is markdown, by itself or after parsing."""
        return self not in (MediaType.TEXT, MediaType.PDF)


class Stage(StrEnum):
    """Where a document stands on its way to being answerable."""

    QUEUED = "queued"
    PARSING = "parsing"
    EMBEDDING = "embedding"
    PRECOMPUTING = "precomputing"
    READY = "ready"
    FAILED = "failed"


class Relevance(StrEnum):
    """Whether a passage is about the question, by a measure that does not depend on its rivals."""

    NONE = "none"
    LOW = "low"
    GOOD = "good"


@dataclass(frozen=True)
class Document:
    """What a user added, without its text. Times are Unix seconds, `bytes` the size of the file as uploaded."""

    id: str
    filename: str
    title: str
    media_type: MediaType
    sha256: str
    bytes: int
    stage: Stage
    error: str | None
    passages: int
    passages_done: int
    tokens: int
    created_at: int
    updated_at: int
    replaces: str | None = None


@dataclass(frozen=True)
class SourceText:
    """A document's whole text and the offsets at which its pages begin; no pages for kinds without."""

    text: str
    page_starts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Passage:
    """A piece of a document: `text` is the document's `[start:end)` in characters.

    `token_ids` are the ids of `render_passage(title, text)`, made once and never derived again. `page` is where it
    starts, from 1; `heading` the headings above it, joined by " > ".
    """

    id: str
    document_id: str
    ordinal: int
    title: str
    text: str
    start: int
    end: int
    token_ids: tuple[int, ...]
    chunk_key: str
    page: int | None = None
    heading: str = ""


@dataclass(frozen=True)
class IndexedPassage:
    """What searching needs of a passage: its words and its unit-length embedding, float32 `[dimensions]`."""

    id: str
    document_id: str
    title: str
    text: str
    embedding: NDArray[np.float32]


@dataclass(frozen=True)
class Hit:
    """One search result: the fused score, the cosine and the BM25 score behind it."""

    passage_id: str
    score: float
    dense_score: float
    sparse_score: float


@dataclass(frozen=True)
class ScoredPassage:
    """A candidate passage; `rank` counts from 1, the most relevant first.

    `scores` holds what each auxiliary scorer said, by its name.
    """

    passage: Passage
    score: float
    dense_score: float
    sparse_score: float
    rank: int
    scores: Mapping[str, float] = field(default_factory=dict)
    relevance: Relevance = Relevance.GOOD


@dataclass(frozen=True)
class Selection:
    """The passages chosen for one question, most relevant first, and why no others.

    `rule` says in words what cut the list, `considered` how many candidates it was cut from; `low_relevance` that
    even the best of them is probably beside the question. With `relevance` NONE no candidate is about the question at
    all, and none is chosen. `timings_ms` holds one entry a stage.
    """

    passages: tuple[ScoredPassage, ...]
    rule: str
    considered: int
    low_relevance: bool
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    relevance: Relevance = Relevance.GOOD
