"""Services over the lab's engine and store, each served over HTTP: another setting costs no other engine."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from app.config import Settings, load_settings
from app.engine_values import Generated, Sampling
from app.main import create_app
from app.selfcheck import SelfCheck
from app.serve import make_server
from app.service import KvfuseService
from cascade.embed import Embedder
from fuse.plan import FusePlan
from store.tiered import TieredStore
from tests.e2e.lab import Lab


class _Engine:
    """The lab's engine, seen through: every request's last piece is kept."""

    def __init__(self, lab: Lab, seen: list[Generated]) -> None:
        self._engine = lab.engine
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(
        self, token_ids: Sequence[int], sampling: Sampling, plan: FusePlan | None = None, salt: str | None = None
    ) -> AsyncIterator[Generated]:
        async for piece in self._engine.generate(token_ids, sampling, plan, salt):
            if piece.finish_reason is not None:
                self._seen.append(piece)
            yield piece


class _Service(KvfuseService):
    """Starts with the lab's engine and store instead of its own."""

    def __init__(self, settings: Settings, lab: Lab, embedder: Path, seen: list[Generated]) -> None:
        super().__init__(settings)
        self._lab, self._embedder, self._seen = lab, embedder, seen

    async def start(self) -> None:
        engine: Any = _Engine(self._lab, self._seen)
        self.engine, self.check = engine, SelfCheck(True, "")
        self.store = self._parts.enter_context(TieredStore(self._lab.store))
        await self._start_documents(self._lab.language, Embedder(self._embedder))


@dataclass
class Borrowed:
    """A client of one service. seen: the last piece of every answer of its engine, in the order of their ends."""

    client: httpx.AsyncClient
    seen: list[Generated] = field(default_factory=list)

    def cached(self) -> list[int]:
        """Context tokens that came out of vLLM's prefix cache, for every answer; -1 if they all did."""
        return [piece.report.get("cached", -1) for piece in self.seen]

    async def add(self, name: str, text: str) -> str:
        """Upload a document that must become ready; returns its id."""
        id = (await self.client.post("/v1/files", files={"file": (name, text.encode())})).json()["id"]
        while (file := (await self.client.get(f"/v1/files/{id}")).json())["status"] == "uploaded":
            await asyncio.sleep(0.05)
        assert file["status"] == "processed", file
        return str(id)

    async def ask(self, question: str, documents: Sequence[str], **body: Any) -> httpx.Response:
        options = {"document_ids": list(documents), **body.pop("kvfuse", {})}
        return await self.client.post("/v1/chat/completions", json=_body(question, body, options))

    async def stream(self, question: str, documents: Sequence[str], **options: Any) -> tuple[str, dict[str, Any]]:
        """Return the text of a streamed answer, and its account."""
        body = _body(question, {"stream": True}, {"document_ids": list(documents), **options})
        text, account = "", dict[str, Any]()
        async with self.client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    text += event["choices"][0]["delta"].get("content") or ""
                    account = event.get("kvfuse", account)
        return text, account


@asynccontextmanager
async def borrowed(lab: Lab, embedder: Path, home: Path, **settings: Any) -> AsyncIterator[Borrowed]:
    """Serve on a free port with `settings` until the end of the block."""
    parsed, seen = load_settings(home=home, port=0, **settings), list[Generated]()
    server = make_server(parsed, create_app(parsed, _Service(parsed, lab, embedder, seen)))
    running = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120) as client:
            while (await client.get("/ready")).status_code != httpx.codes.OK:
                await asyncio.sleep(0.05)
            yield Borrowed(client, seen)
    finally:
        server.should_exit = True
        await running


def _body(question: str, body: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    return {"messages": messages, "max_tokens": 24, **body, "kvfuse": options}
