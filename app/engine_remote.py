"""RemoteEngine: one stand-alone vLLM server, asked through its OpenAI API."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import openai

from app.engine_values import EngineDown, EngineError, Generated, Sampling, Saved
from app.language import Language
from fuse.plan import FusePlan
from fuse.scheme import SaveStep
from store.config import StoreConfig
from store.keys import ModelFingerprint

logger = logging.getLogger(__name__)

_CONNECT_S = 5.0
_READ_S = 600.0
_PING_TIMEOUT_S = 10.0
_PLAIN = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling that a model's own generation settings would change on the server's side."""


class RemoteEngine:
    """A vLLM server at `url` with `VllmWorker` and `FuseEndpoints` in it. Implements `app.engine.Engine`.

    language: what the server must serve; store: where its chunks are expected.
    """

    def __init__(self, url: str, api_key: str, language: Language, store: StoreConfig) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._language = language
        self._expected = _places(store.to_json())
        self._client = openai.AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key=api_key or "none",
            max_retries=0,
            timeout=openai.Timeout(_READ_S, connect=_CONNECT_S),
        )
        self._model = ""
        self._places: Mapping[str, Any] = {}
        self.fusable = False
        self.refusal = "the engine has not answered yet"
        self.max_model_len = 0

    async def start(self) -> None:
        """Ask the server for its model.

        Raises:
            EngineDown: it does not answer.
            EngineError: it serves another model, or knows nothing of fusion.
        """
        facts = await self._get("")
        self._require_same_model(facts)
        self._model, self.max_model_len, self._places = facts["model"], facts["max_model_len"], _places(facts["store"])
        if self._places != self._expected:
            logger.warning("%s stores chunks in %s, expected were %s", self.url, self._places, self._expected)
        self.fusable, self.refusal = facts["fusable"], facts["reason"]

    def refuse(self, reason: str) -> None:
        self.fusable, self.refusal = False, reason

    async def stop(self) -> None:
        await self._client.close()

    async def alive(self) -> bool:
        try:
            with self._errors():
                await asyncio.wait_for(self._client.get(f"{self.url}/health", cast_to=object), _PING_TIMEOUT_S)
        except (EngineError, TimeoutError):
            return False
        return True

    async def describe(self) -> list[dict[str, Any]]:
        facts = {"fusable": self.fusable, "refusal": self.refusal, "max_model_len": self.max_model_len}
        return [{"engine": self.url, "answers": await self.alive(), **facts, **self._places}]

    async def store_stats(self) -> Mapping[str, Mapping[str, Any]]:
        return {self.url: await self._get("/store")}

    async def generate(
        self, token_ids: Sequence[int], sampling: Sampling, plan: FusePlan | None = None, salt: str | None = None
    ) -> AsyncIterator[Generated]:
        tag = uuid.uuid4().hex
        request = self._request(token_ids, sampling, plan.to_params(tag) if plan else None, salt)
        last: Generated | None = None
        with self._errors():
            stream = await self._client.completions.create(
                **request, stream=True, stream_options={"include_usage": True}
            )
            async with stream:
                async for chunk in stream:
                    for choice in chunk.choices:
                        last = _generated(choice)
                        if last.finish_reason is None:
                            yield last
                    if last is not None and chunk.usage and (details := chunk.usage.prompt_tokens_details):
                        last = replace(last, cached_tokens=details.cached_tokens or 0)
        if last is None or last.finish_reason is None:
            raise EngineDown(f"{self.url}: the answer broke off")
        yield replace(last, report=await self._get(f"/reports/{tag}")) if plan else last

    async def log_likelihood(
        self, before: Sequence[int], token_ids: Sequence[int], plan: FusePlan | None = None
    ) -> float:
        body = {"before": list(before), "token_ids": list(token_ids)}
        with self._errors():
            found: Any = await self._client.post(
                "/kvfuse/likelihood",
                body={**body, "kv_transfer_params": plan.to_params() if plan else None},
                cast_to=object,
            )
        return float(found)

    async def save(self, steps: Sequence[SaveStep]) -> Saved:
        tag = uuid.uuid4().hex
        for step in steps:
            with self._errors():
                request = self._request(step.token_ids, Sampling(1), step.order.to_params(tag), None)
                await self._client.completions.create(**request)
        return await Saved.result(steps[-1].order.key, self._get(f"/saves/{tag}"))

    def _request(
        self, token_ids: Sequence[int], sampling: Sampling, transfer: Mapping[str, Any] | None, salt: str | None
    ) -> dict[str, Any]:
        ours = {"kv_transfer_params": transfer, "cache_salt": salt, "return_token_ids": True}
        return {
            "model": self._model,
            "prompt": list(token_ids),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
            "logprobs": sampling.logprobs,
            "extra_body": {**_PLAIN, "return_tokens_as_token_ids": sampling.logprobs is not None, **ours},
        }

    async def _get(self, path: str) -> dict[str, Any]:
        with self._errors():
            found: Any = await self._client.get(f"/kvfuse{path}", cast_to=object)
            return dict(found)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except openai.APIStatusError as error:
            if error.status_code >= 500:
                raise EngineDown(f"{self.url}: {error}") from error
            hint = " (start it with `kvfuse engine`)" if error.status_code == 404 else ""
            raise EngineError(f"{self.url}: {error}{hint}") from error
        except (openai.OpenAIError, httpx.TransportError) as error:
            raise EngineDown(f"{self.url}: {error}") from error

    def _require_same_model(self, facts: Mapping[str, Any]) -> None:
        fields, language = facts["fingerprint"], self._language
        if fields is None:
            raise EngineError(f"{self.url} serves a model that is no local folder of weights: {facts['unknown_model']}")
        if ModelFingerprint(**{**fields, "ingest": language.scheme.describe()}).digest() != language.fingerprint:
            raise EngineError(
                f"{self.url} serves another model than {language.model} in this service's dtype: {facts['model']}, "
                f"{fields['layers']} layers, {fields['dtype']}, weights {fields['weights'][:12]}"
            )


def _places(store: Mapping[str, Any]) -> dict[str, Any]:
    return {name: store.get(name) for name in ("memory_dir", "disk_dir", "remote_url")}


def _generated(choice: Any) -> Generated:
    """Read one piece of a completion; tokens of log-probabilities are written as `token_id:5`."""
    positions = choice.logprobs.top_logprobs or () if choice.logprobs else ()
    logprobs = tuple(
        {int(token.removeprefix("token_id:")): value for token, value in position.items()} for position in positions
    )
    return Generated(choice.text, tuple(choice.token_ids or ()), 0, choice.finish_reason, {}, logprobs)
