"""OutsideEngine: any OpenAI-compatible completion server, asked the same token ids, as a baseline from outside."""

import time

import openai

from app.engine_values import Sampling
from app.eval.errors import EvalError
from app.eval.lab import Answer
from app.eval.prompt import Prompt


class OutsideEngine:
    """A server at `url` (with or without `/v1`); whatever it has cached, it uses."""

    def __init__(self, url: str, api_key: str = "none") -> None:
        base = url.rstrip("/")
        self._client = openai.AsyncOpenAI(base_url=base if base.endswith("/v1") else f"{base}/v1", api_key=api_key)
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
        """Generate one answer; times are of the pieces as they arrive."""
        text, times = "", list[float]()
        started = time.perf_counter()
        try:
            stream = await self._client.completions.create(
                model=self.model,
                prompt=prompt.token_ids(),
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                stop=list(sampling.stop) or None,
                stream=True,
            )
            async for piece in stream:
                if piece.choices and (piece.choices[0].text or piece.choices[0].finish_reason):
                    times.append(time.perf_counter() - started)
                    text += piece.choices[0].text
        except openai.OpenAIError as error:
            raise EvalError(f"{self._url}: {error}") from error
        if not times:
            raise EvalError(f"{self._url} ended an answer without a token")
        return Answer(text, tuple(times), 0)

    async def close(self) -> None:
        await self._client.close()
