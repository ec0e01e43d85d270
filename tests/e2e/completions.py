"""An engine behind OpenAI's completions over HTTP: the smallest server that `--engine-url` can measure."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from app.engine import Engine
from app.engine_values import Sampling


@asynccontextmanager
async def completions_served(engine: Engine) -> AsyncIterator[str]:
    """Serve the engine in this event loop; yields the URL."""
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "real", "object": "model", "created": 0, "owned_by": "test"}]}

    @app.post("/v1/completions")
    async def completions(body: dict[str, Any]) -> StreamingResponse:
        assert body["stream"]
        assert body["model"] == "real"
        return StreamingResponse(_events(engine, body), media_type="text/event-stream")

    async with serving(app) as url:
        yield url


async def _events(engine: Engine, body: dict[str, Any]) -> AsyncIterator[str]:
    sampling = Sampling(body["max_tokens"], body["temperature"])
    async for piece in engine.generate(body["prompt"], sampling, salt="a server outside"):
        choice = {"index": 0, "text": piece.text, "finish_reason": piece.finish_reason, "logprobs": None}
        event = {"id": "1", "object": "text_completion", "created": 0, "model": "real", "choices": [choice]}
        yield f"data: {json.dumps(event)}\n\n"
    yield "data: [DONE]\n\n"


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """Serve an application on a free port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    (port,) = {socket.getsockname()[1] for each in server.servers for socket in each.sockets}
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    await running
