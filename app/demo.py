"""`make demo`: precompute the example handbook, serve it, ask over REST, compare with an ordinary prefill."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from app.config import Settings, load_settings

DOCUMENTS = Path(__file__).parents[1] / "examples" / "handbook"
QUESTIONS = ("What is the phone number of the IT service desk?", "Until what time is the IT help desk available?")
_ANSWER_TOKENS = 48


@dataclass(frozen=True)
class Reply:
    """One answer as its caller saw it: `ttft` in seconds, from sending the request to the first text."""

    text: str
    ttft: float
    account: dict[str, Any]


async def demo() -> None:
    """Run the whole path once and print what a user would see."""
    # Not at the top: the engine's workers import this module again, and must not import the store (see
    # `fuse/connector/connector.py`).
    from app.jobs import precompute_with
    from app.service import KvfuseService
    from app.telemetry import configure_logging

    settings = load_settings(port=0)
    configure_logging("warning")
    service = KvfuseService(settings)
    print(f"Starting the engine with {service.model_name} ...", flush=True)
    async with _serving(settings, service) as client:
        summary = await precompute_with(service, sorted(DOCUMENTS.glob("*.md")))
        print(summary.describe())
        for question in QUESTIONS:
            await _show(client, service.model_name, question)


async def _show(client: AsyncOpenAI, model: str, question: str) -> None:
    from app.jobs import describe

    print(f"\nQuestion: {question}\nAnswer:   ", end="", flush=True)
    fused = await _ask(client, model, question, fuse=True, echo=True)
    ordinary = await _ask(client, model, question, fuse=False, echo=False)
    print(f"\n{describe(fused.account)}")
    print(
        f"time to first token over REST: {fused.ttft:.3f} s fused, {ordinary.ttft:.3f} s by an ordinary prefill of the "
        f"same tokens: {ordinary.ttft / fused.ttft:.1f} times as fast"
    )


async def _ask(client: AsyncOpenAI, model: str, question: str, fuse: bool, echo: bool) -> Reply:
    text, ttft = "", 0.0
    account: dict[str, Any] = {}
    started = time.perf_counter()
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=_ANSWER_TOKENS,
        stream=True,
        extra_body={"kvfuse": {"fuse": fuse}},
    )
    async for chunk in stream:
        delta = chunk.choices[0].delta.content or "" if chunk.choices else ""
        if delta and not text:
            ttft = time.perf_counter() - started
        text += delta
        account = (chunk.model_extra or {}).get("kvfuse", account)
        if echo:
            print(delta, end="", flush=True)
    return Reply(text, ttft, account)


@asynccontextmanager
async def _serving(settings: Settings, service: Any) -> AsyncIterator[AsyncOpenAI]:
    """Serve over HTTP on a free loopback port, and yield a client once the service has started."""
    from app.main import create_app
    from app.serve import make_server

    app = create_app(settings, service)
    server = make_server(settings, app)
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.05)
        await app.state.startup
        address, port = server.servers[0].sockets[0].getsockname()[:2]
        key = settings.api_keys[0].get_secret_value() if settings.api_keys else "none"
        print(f"Serving on http://{address}:{port}")
        async with AsyncOpenAI(base_url=f"http://{address}:{port}/v1", api_key=key) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(demo())
