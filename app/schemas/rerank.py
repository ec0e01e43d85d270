"""Reranking in the form that vLLM, Cohere and Jina share."""

import uuid
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, Field, StringConstraints

Text = Annotated[str, StringConstraints(max_length=100_000)]


class RerankDocument(BaseModel):
    """A text to be judged."""

    text: Text


class RerankBody(BaseModel):
    """A query and the texts to put in order."""

    model: str | None = None
    query: Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
    documents: list[Text | RerankDocument] = Field(min_length=1, max_length=1000)
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = True

    @property
    def texts(self) -> list[str]:
        return [text if isinstance(text, str) else text.text for text in self.documents]


class RerankResult(BaseModel):
    """One text's place in the request, and its score from 0 to 1."""

    index: int
    relevance_score: float
    document: RerankDocument | None = None


class RerankAnswer(BaseModel):
    """The texts, best first."""

    id: str = Field(default_factory=lambda: f"rerank-{uuid.uuid4().hex}")
    model: str
    results: list[RerankResult]

    @classmethod
    def of(cls, model: str, body: RerankBody, scores: Sequence[float]) -> Self:
        """The best `top_n` of the request's texts."""
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
        texts = body.texts
        shown = (RerankDocument(text=texts[index]) if body.return_documents else None for index in order)
        return cls(
            model=model,
            results=[
                RerankResult(index=index, relevance_score=scores[index], document=document)
                for index, document in zip(order, shown, strict=True)
            ],
        )
