"""Engines as servers of their own: the same answers and accounts as an engine in the process, and no end when one dies.

A tiny random model in float32, so that a greedy answer does not depend on what else is in its batch.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.config import Settings, load_settings
from app.engine_remote import RemoteEngine
from app.engine_values import EngineError, Sampling, Saved
from app.errors import NotReady
from app.jobs import plain_question, precompute_with, running
from app.language import Language
from app.service import KvfuseService
from app.service_api import AnswerDone
from store.config import StoreConfig
from store.speed import SMALLEST
from tests.e2e.models import TinyModel
from tests.e2e.server import _environment, _free_port

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

KEY = "sesame"
TOKEN_BYTES = 2 * 2 * 2 * 32 * 4
"""Layers, K and V, heads, head size and bytes of a float32 in the tiny model."""
HANDBOOK = Path(__file__).parents[2] / "examples" / "handbook"
SOME_TOKENS, ASKED = range(1000, 1040), range(2000, 2010)
QUESTIONS = ("Who pays for travel?", "What is overtime?", "Who approves a purchase?", "Who may take leave?")


@dataclass
class EngineServer:
    """`kvfuse engine` as a process of its own; `log` holds what it wrote."""

    settings: Settings
    port: int
    log: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        shared = {name: getattr(self.settings, name) for name in ("model", "home", "memory_dir", "dtype")}
        flags = {**shared, "port": self.port, "kv_cache_gib": 0.25, "max_model_len": 2048, "engine_api_key": KEY}
        command = [sys.executable, "-m", "app.cli", "engine"]
        command += [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=_environment())

    def kill(self) -> None:
        """End it as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


@pytest.fixture(scope="module")
def settings(model_dir: Path, embedder_dir: Path, tmpfs: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("standalone")
    TinyModel("llama", "llama").write(home / "model", model_dir)
    return load_settings(
        home=home,
        model=home / "model",
        embedder=embedder_dir,
        memory_dir=tmpfs / "standalone",
        dtype="float32",
        max_model_len=2048,
        kv_cache_gib=0.25,
        max_output_tokens=32,
        engine_api_key=KEY,
        no_context="answer",
        # Longer ones are at times computed instead of loaded: this model is about as fast, and answers differ a little.
        passage_tokens=SMALLEST - 1,
    )


@pytest.fixture(scope="module")
def servers(settings: Settings) -> Iterator[list[EngineServer]]:
    servers = [EngineServer(settings, _free_port(), settings.home / f"engine-{index}.log") for index in range(2)]
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
            server.start()
        yield servers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(settings: Settings, servers: list[EngineServer]) -> AsyncIterator[KvfuseService]:
    """The service over both servers, with documents that they have computed."""
    urls = tuple(server.url for server in servers)
    async with running(settings.model_copy(update={"engine_urls": urls})) as service:
        await until_usable(service, [True, True])
        yield service


@dataclass
class Reply:
    text: str = ""
    account: dict[str, Any] = field(default_factory=dict)


async def ask(service: KvfuseService, question: str, reply: Reply | None = None) -> Reply:
    """Ask, and let `reply` grow meanwhile."""
    reply = reply or Reply()
    async for event in service.answer(plain_question(question)):
        if isinstance(event, AnswerDone):
            reply.account = event.kvfuse["tokens"]
        else:
            reply.text += event.text
    return reply


async def ask_all(service: KvfuseService) -> list[Reply]:
    """Ask every question, all at once."""
    return list(await asyncio.gather(*(ask(service, question) for question in QUESTIONS)))


def texts(replies: Sequence[Reply]) -> list[str]:
    return [reply.text for reply in replies]


async def usable(service: KvfuseService) -> list[bool]:
    return [bool(engine["usable"]) for engine in await service.engine.describe()]


async def until_usable(service: KvfuseService, expected: Sequence[bool]) -> None:
    async with asyncio.timeout(300):
        while await usable(service) != list(expected):
            await asyncio.sleep(0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def banked(service: KvfuseService) -> Saved:
    """Bytes of the chunks of three documents, computed by the servers."""
    files = [HANDBOOK / name for name in ("travel-reimbursement.md", "overtime.md", "purchase-requests.md")]
    summary = await precompute_with(service, files)
    assert summary.documents == 3
    assert summary.raw_bytes == summary.tokens * TOKEN_BYTES
    return Saved(summary.raw_bytes, summary.stored_bytes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replies(service: KvfuseService, banked: Saved) -> list[Reply]:
    return await ask_all(service)


async def test_servers_store_and_fuse(service: KvfuseService, banked: Saved, replies: list[Reply]) -> None:
    assert service.check.passed
    assert banked.stored_bytes > 0
    for reply in replies:
        assert reply.account["reused"] > reply.account["computed"]
        assert reply.account["recomputed"] > 0
        assert reply.account["missed_chunks"] == 0
    assert len(set(texts(replies))) == len(QUESTIONS)


async def test_an_engine_in_the_process_answers_alike(
    service: KvfuseService, settings: Settings, replies: list[Reply]
) -> None:
    """Over the same folders: what the servers have stored is used, answers and accounts are the same."""
    async with running(settings) as local:
        here = await ask_all(local)
        likelihood = await local.engine.log_likelihood(SOME_TOKENS, ASKED)
        ordinary = [piece async for piece in local.engine.generate(SOME_TOKENS, Sampling(4, logprobs=5))]
    assert texts(here) == texts(replies)
    assert [reply.account for reply in here] == [reply.account for reply in replies]
    assert await service.engine.log_likelihood(SOME_TOKENS, ASKED) == pytest.approx(likelihood, abs=1e-3)
    pieces = [piece async for piece in service.engine.generate(SOME_TOKENS, Sampling(4, logprobs=5))]
    assert [token for piece in pieces for token in piece.token_ids] == [
        t for piece in ordinary for t in piece.token_ids
    ]
    assert pieces[0].logprobs[0] == pytest.approx(ordinary[0].logprobs[0], abs=1e-3)


async def test_an_engine_that_dies_in_the_middle_costs_no_answer(
    service: KvfuseService, servers: list[EngineServer], replies: list[Reply]
) -> None:
    dying, other = service.engine._members  # type: ignore[attr-defined]
    growing = [Reply() for _ in QUESTIONS * 2]
    with ExitStack() as crowd:
        for _ in growing:
            crowd.enter_context(other.busy())  # so that all of them go to the one that dies
        asking = [asyncio.create_task(ask(service, *each)) for each in zip(QUESTIONS * 2, growing, strict=True)]
        while not all(len(reply.text.split()) >= 3 for reply in growing):
            await asyncio.sleep(0.002)
    assert dying.running
    servers[0].kill()
    assert texts(await asyncio.gather(*asking)) == texts(replies) * 2
    assert await service.ready()
    assert texts(await ask_all(service)) == texts(replies)
    assert await usable(service) == [False, True]


async def test_without_any_engine_the_service_is_not_ready_until_one_is_back(
    service: KvfuseService, servers: list[EngineServer], replies: list[Reply]
) -> None:
    servers[1].kill()
    await until_usable(service, [False, False])
    assert not await service.ready()
    with pytest.raises(NotReady):
        await ask(service, QUESTIONS[0])
    servers[0].start()
    await until_usable(service, [True, False])
    assert await service.ready()
    assert (await ask(service, QUESTIONS[0])).text == replies[0].text


async def test_a_server_of_another_model_is_not_used(servers: list[EngineServer], model_dir: Path) -> None:
    """Its name would not tell."""
    store = StoreConfig(Path("memory"), Path("disk"))
    engine = RemoteEngine(servers[0].url, KEY, Language.load(model_dir, "float32"), store)
    with pytest.raises(EngineError, match="serves another model"):
        await engine.start()
    await engine.stop()


async def test_the_servers_key_guards_what_is_said_of_fusion(servers: list[EngineServer]) -> None:
    async with httpx.AsyncClient(base_url=servers[0].url) as client:
        assert (await client.get("/v1/kvfuse")).status_code == 401
        known = await client.get("/v1/kvfuse", headers={"Authorization": f"Bearer {KEY}"})
        assert known.json()["fusable"] is True
