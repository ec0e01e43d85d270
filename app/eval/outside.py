"""OutsideEngine: any OpenAI-compatible completion server, asked the same token ids, as a baseline from outside."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai

from app.engine_values import Sampling
from app.eval.errors import EvalError
from app.eval.lab import Answer
from app.eval.prompt import Prompt


class OutsideEngine:
    """A server at `url` (with or without `/v1`); whatever it has cached, it uses.

    Its key is that of the variable OPENAI_API_KEY, if it wants one.
    """

    def __init__(self, url: str) -> None:
        base = url.rstrip("/")
        self._client = openai.AsyncOpenAI(
            base_url=base if base.endswith("/v1") else f"{base}/v1",
            api_key=os.environ.get("OPENAI_API_KEY", "none"),
            max_retries=0,  # a repeated request would be timed twice and find what the first one cached
        )
        self._url = url
        self.model = ""

    async def connect(self) -> None:
        """Find the served model's name.

        Raises:
            EvalError: the server does not answer or serves nothing.
        """
        try:
            served = [model.id async for model in self._client.models.list()]
        except openai.OpenAIError as error:
            raise EvalError(f"{self._url}: {error}") from error
        if not served:
            raise EvalError(f"{self._url} serves no model")
        self.model = served[0]

    async def answer(self, prompt: Prompt, sampling: Sampling) -> Answer:
        """Generate one answer; times are of the pieces as they arrive.

        Raises:
            EvalError: the server fails, serves no completions, or ends without a token.
        """
        text, times, cached = "", list[float](), 0
        started = time.perf_counter()
        try:
            stream = await self._client.completions.create(
                model=self.model,
                prompt=prompt.token_ids(),
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                stop=list(sampling.stop) or None,
                stream=True,
                stream_options={"include_usage": True},
            )
            async for piece in stream:
                if piece.usage and piece.usage.prompt_tokens_details:
                    cached = piece.usage.prompt_tokens_details.cached_tokens or 0
                if piece.choices and (piece.choices[0].text or piece.choices[0].finish_reason):
                    times.append(time.perf_counter() - started)
                    text += piece.choices[0].text
        except openai.OpenAIError as error:
            raise EvalError(f"{self._url}: {error}") from error
        if not times:
            raise EvalError(f"{self._url} ended an answer without a token")
        return Answer(text, tuple(times), cached)

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def outside_engine(url: str) -> AsyncIterator[OutsideEngine]:
    """A connected engine, closed at the end. Raises EvalError as `connect` does."""
    outside = OutsideEngine(url)
    try:
        await outside.connect()
        yield outside
    finally:
        await outside.close()
