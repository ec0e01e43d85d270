"""Auxiliary models that look at question and passage together."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import numpy as np

from cascade.errors import ScorerError
from cascade.passages import render_passage
from cascade.token_vectors import Question, TokenVectors, similarity
from cascade.types import Passage


class Scorer(Protocol):
    """Says how well each passage answers a question; only differences between its scores count."""

    @property
    def name(self) -> str:
        """Under which its scores are reported."""
        ...

    async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
        """One score a passage, higher for better. Must not block the event loop."""
        ...


@dataclass(frozen=True)
class MaxSimScorer:
    """Late interaction over the embedder's token vectors, rare words counting more; scores from about 0 to 1.

    `vectors` gives the stored vectors of passages by their ids.
    """

    vectors: Callable[[Sequence[str]], Awaitable[Mapping[str, TokenVectors]]]
    name: str = "maxsim"

    async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
        """See Scorer; a passage deleted meanwhile scores 0."""
        stored = await self.vectors([passage.id for passage in passages])
        nothing = TokenVectors.of(np.empty((0, len(question.vector)), dtype=np.float32))
        found = [stored.get(passage.id, nothing) for passage in passages]
        return [float(score) for score in await asyncio.to_thread(similarity, question, found)]


class CrossEncoderScorer:
    """A sentence-transformers cross-encoder in a local folder."""

    name = "cross-encoder"

    def __init__(self, model: Path, device: str = "cpu") -> None:
        from sentence_transformers import CrossEncoder

        self._model = CrossEncoder(str(model), device=device, local_files_only=True)

    async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
        """See Scorer."""
        pairs = [(question.text, render_passage(passage.title, passage.text)) for passage in passages]
        scores = await asyncio.to_thread(self._model.predict, pairs, show_progress_bar=False)
        return [float(score) for score in scores]


class RerankServerScorer:
    """Any server with a `/v1/rerank` of the kind that vLLM, Cohere and Jina offer."""

    name = "rerank-server"

    def __init__(self, url: str, model: str, api_key: str = "", timeout_s: float = 30.0) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout_s)
        self._url = f"{url.rstrip('/').removesuffix('/v1')}/v1/rerank"
        self._model = model

    async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
        """See Scorer; raises ScorerError when the server fails or answers in another form."""
        texts = [render_passage(passage.title, passage.text) for passage in passages]
        body = {"model": self._model, "query": question.text, "documents": texts}
        try:
            answer = await self._client.post(self._url, json=body)
            answer.raise_for_status()
            scores = {entry["index"]: float(entry["relevance_score"]) for entry in answer.json()["results"]}
            return [scores[index] for index in range(len(passages))]
        except (httpx.HTTPError, KeyError, TypeError, ValueError) as error:
            raise ScorerError(f"the rerank server {self._url} failed: {error!r}") from error
