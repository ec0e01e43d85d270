"""A stand-in for a vLLM server: the routes that `RemoteEngine` uses, with faults where a test wants them.

The model continues every prompt with one more than its last token.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

FINGERPRINT = {"weights": "aa", "dtype": "float32", "layers": 1, "kv_heads": 1, "head_dim": 8, "rope": "{}"}
REPORT = {"reused": 5, "recomputed": 2, "computed": 1, "cached": 0, "missed_chunks": 0}


@dataclass
class FakeEngine:
    """`dies_after`, `freezes_after`: tokens after which every answer breaks off, or stops with all else.

    down: every request is refused with 503.
    """

    weights: str = "aa"
    dies_after: int | None = None
    freezes_after: int | None = None
    frozen: bool = False
    down: bool = False
    fusable: bool = True
    prompts: list[list[int]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.middleware("http")
        async def refuse(request: Request, proceed: Any) -> Any:
            await self._thaw()
            return StreamingResponse(iter(()), status_code=503) if self.down else await proceed(request)

        @app.get("/health")
        async def health() -> None: ...

        @app.get("/v1/kvfuse")
        async def facts() -> dict[str, Any]:
            fingerprint = {**FINGERPRINT, "weights": self.weights, "kv_dtype": "float32"}
            known = {
                "fusable": self.fusable,
                "reason": "" if self.fusable else "it has a window",
                "fingerprint": fingerprint,
            }
            return {**known, "model": "fake", "max_model_len": 512, "store": {}}

        @app.get("/v1/kvfuse/reports/{tag}")
        async def report(tag: str) -> dict[str, Any]:
            return REPORT

        @app.get("/v1/kvfuse/saves/{tag}")
        async def save(tag: str) -> dict[str, Any]:
            return {"key": "k", "raw_bytes": 100, "stored_bytes": 60, "error": "" if tag in self._tags() else "unknown"}

        @app.post("/v1/kvfuse/likelihood")
        async def likelihood(request: Request) -> float:
            return -float(len((await request.json())["token_ids"]))

        @app.post("/v1/completions", response_model=None)
        async def complete(request: Request) -> StreamingResponse | dict[str, Any]:
            body = await request.json()
            self.prompts.append(body["prompt"])
            self.asked.append(body)
            if body["prompt"][0] == 0:
                raise HTTPException(400, "a prompt that no engine takes")
            if not body.get("stream"):
                return {"id": "c", "object": "text_completion", "created": 0, "model": "fake", "choices": []}
            return StreamingResponse(self._answer(body), media_type="text/event-stream")

        return app

    async def _thaw(self) -> None:
        while self.frozen:
            await asyncio.sleep(0.01)

    def _tags(self) -> set[str]:
        return {(body.get("kv_transfer_params") or {}).get("kvfuse", {}).get("tag") for body in self.asked}

    async def _answer(self, body: dict[str, Any]) -> AsyncIterator[str]:
        token, limit = body["prompt"][-1], body["max_tokens"]
        for count in range(1, limit + 1):
            token += 1
            if self.dies_after is not None and count > self.dies_after:
                self.down = True
                raise ConnectionError("killed")
            if self.freezes_after is not None and count > self.freezes_after:
                self.frozen = True
                await self._thaw()
            yield _event(_choice(token, "length" if count == limit else None))
            await asyncio.sleep(0.001)
        yield _event({"choices": [], "usage": _usage()})
        yield "data: [DONE]\n\n"


@contextmanager
def serving(engine: FakeEngine) -> Iterator[FakeEngine]:
    """Serve over HTTP on a free loopback port, in a thread."""
    server = uvicorn.Server(uvicorn.Config(engine.app(), host="127.0.0.1", port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        engine.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield engine
    finally:
        engine.frozen = False
        server.should_exit = True
        thread.join()


def _choice(token: int, finish: str | None) -> dict[str, Any]:
    return {
        "choices": [{"index": 0, "text": f" {token}", "token_ids": [token], "finish_reason": finish, "logprobs": None}]
    }


def _usage() -> dict[str, Any]:
    details = {"cached_tokens": 3}
    return {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "prompt_tokens_details": details}


def _event(chunk: dict[str, Any]) -> str:
    whole = {"id": "c", "object": "text_completion", "created": 0, "model": "fake", **chunk}
    return f"data: {json.dumps(whole)}\n\n"
