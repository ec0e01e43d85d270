"""Engine servers as one engine: what is sent, what an engine drops, and which engines are used at all."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app import engine_pool, engine_remote
from app.engine import Engine
from app.engine_pool import EnginePool
from app.engine_remote import RemoteEngine
from app.engine_values import EngineError, Sampling, Saved
from app.errors import NotReady
from app.selfcheck import SelfCheck
from fuse.plan import FusePlan, PolicySpec, SaveOrder, Segment
from fuse.scheme import SaveStep
from store.config import StoreConfig
from store.keys import ChunkKey, ModelFingerprint
from tests.app.fake_engine import FINGERPRINT, REPORT, FakeEngine, serving

PROMPT = [7, 8, 9]
PLAN = FusePlan("f" * 64, (Segment(2, ChunkKey("a" * 64)),), PolicySpec("none"))
LANGUAGE: Any = SimpleNamespace(
    model=Path("model"),
    scheme=SimpleNamespace(describe=lambda: "scheme"),
    fingerprint=ModelFingerprint(**FINGERPRINT, kv_dtype="float32", ingest="scheme").digest(),
)


@pytest.fixture(autouse=True)
def _watch_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_pool, "_WATCH_S", 0.25)


@pytest.fixture
def engines() -> Iterator[list[FakeEngine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(serving(FakeEngine())) for _ in range(2)]


def as_text(token_ids: Sequence[int]) -> str:
    return "".join(f" {token}" for token in token_ids)


async def passing(engine: Engine) -> SelfCheck:
    return SelfCheck(True, "")


@asynccontextmanager
async def pooled(engines: Sequence[FakeEngine], gate: Any = passing) -> Any:
    """A started pool over the engines, all of them usable that can be."""
    store = StoreConfig(Path("memory"), Path("disk"))
    pool = EnginePool([RemoteEngine(engine.url, "key", LANGUAGE, store) for engine in engines], gate, as_text)
    try:
        await pool.start()
        await until(pool, [not engine.down and engine.weights == "aa" for engine in engines])
        yield pool
    finally:
        await pool.stop()


async def until(pool: EnginePool, expected: list[bool]) -> None:
    async with asyncio.timeout(20):
        while await usable(pool) != expected:
            await asyncio.sleep(0.05)


async def usable(pool: EnginePool) -> list[bool]:
    return [each["usable"] for each in await pool.describe()]


async def answer(pool: EnginePool, prompt: list[int] = PROMPT, tokens: int = 12) -> list[int]:
    return [t async for piece in pool.generate(prompt, Sampling(tokens), PLAN, "salt") for t in piece.token_ids]


async def test_what_is_asked_and_what_comes_back(engines: list[FakeEngine]) -> None:
    async with pooled(engines[:1]) as pool:
        assert (pool.fusable, pool.max_model_len) == (True, 512)
        pieces = [piece async for piece in pool.generate(PROMPT, Sampling(3, seed=4, stop=("x",)), PLAN, "salt")]
        plain = [piece async for piece in pool.generate(PROMPT, Sampling(1))]
        assert await pool.log_likelihood(PROMPT, [1, 2]) == -2.0
    assert "".join(piece.text for piece in pieces) == " 10 11 12"
    assert [piece.finish_reason for piece in pieces] == [None, None, "length"]
    assert (pieces[-1].report, pieces[-1].cached_tokens) == (REPORT, 3)
    assert (plain[-1].report, len(plain)) == ({}, 1)
    fused, ordinary = engines[0].asked
    assert (fused["prompt"], fused["cache_salt"], fused["seed"], fused["stop"]) == (PROMPT, "salt", 4, ["x"])
    assert fused["kv_transfer_params"]["kvfuse"]["segments"] == [[2, "a" * 64]]
    assert (fused["temperature"], fused["top_k"], fused["repetition_penalty"]) == (0.0, 0, 1.0)
    assert ordinary["kv_transfer_params"] is None


async def test_a_passage_is_saved_in_all_its_steps_by_one_engine(engines: list[FakeEngine]) -> None:
    steps = [SaveStep((1, 2), SaveOrder(ChunkKey("a" * 64), "f" * 64, 0, 2)) for _ in range(2)]
    async with pooled(engines) as pool:
        assert await pool.save(steps) == Saved(100, 60)
    assert sorted(len(engine.asked) for engine in engines) == [0, 2]


async def test_requests_go_where_the_least_is_running(engines: list[FakeEngine]) -> None:
    async with pooled(engines) as pool:
        await asyncio.gather(*(answer(pool) for _ in range(6)))
        alone = engines[0].asked[3:], engines[1].asked[3:]
        assert [len(engine.asked) for engine in engines] == [3, 3], alone
        for _ in range(3):
            await answer(pool)
    assert sorted(len(engine.asked) for engine in engines) == [3, 6]  # one salt, one engine


async def test_an_unfinished_answer_is_continued_by_another_engine(engines: list[FakeEngine]) -> None:
    expected = list(range(10, 22))
    async with pooled(engines) as pool:
        for engine in engines:
            engine.dies_after = 5
        with pytest.raises(NotReady):
            await answer(pool)
        for engine in engines:
            engine.down = False
        engines[1].dies_after = None
        await until(pool, [True, True])
        answers = await asyncio.gather(*(answer(pool) for _ in range(4)))
        assert answers == [expected] * 4
        assert any(prompt[:8] == [*PROMPT, *expected[:5]] for prompt in engines[1].prompts)


async def test_an_answer_of_an_engine_that_freezes_is_continued_by_another(
    engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_remote, "_PING_TIMEOUT_S", 0.2)
    async with pooled(engines) as pool:
        engines[0].freezes_after = 5
        async with asyncio.timeout(20):
            assert await asyncio.gather(*(answer(pool) for _ in range(4))) == [list(range(10, 22))] * 4
        assert await usable(pool) == [False, True]
        assert [member.running for member in pool._members] == [0, 0]
        engines[0].frozen, engines[0].freezes_after = False, None
        await until(pool, [True, True])
        assert await answer(pool) == list(range(10, 22))


async def test_an_answer_waits_for_a_frozen_engine_if_there_is_no_other(
    engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_remote, "_PING_TIMEOUT_S", 0.2)
    async with pooled(engines[:1]) as pool:
        engines[0].freezes_after = 5
        waiting = asyncio.create_task(answer(pool))
        await until(pool, [False])
        engines[0].frozen, engines[0].freezes_after = False, None
        assert await waiting == list(range(10, 22))


async def test_without_engines_nothing_is_ready_until_one_is_back(engines: list[FakeEngine]) -> None:
    async with pooled(engines) as pool:
        for engine in engines:
            engine.down = True
        await until(pool, [False, False])
        assert not await pool.alive()
        assert pool.fusable  # documents wait for engines instead of going without K/V
        with pytest.raises(NotReady):
            await answer(pool)
        engines[1].down = False
        await until(pool, [False, True])
        assert await answer(pool) == list(range(10, 22))


async def test_a_bad_request_is_not_the_engines_fault(engines: list[FakeEngine]) -> None:
    async with pooled(engines) as pool:
        with pytest.raises(EngineError, match="400"):
            await answer(pool, [0])
        assert await usable(pool) == [True, True]
    assert sum(len(engine.asked) for engine in engines) == 1


async def test_an_engine_with_another_model_is_not_used(engines: list[FakeEngine]) -> None:
    engines[0].weights = "bb"
    async with pooled(engines) as pool:
        assert await answer(pool)
        assert "serves another model" in (await pool.describe())[0]["trouble"]
        assert engines[0].asked == []
    engines[1].weights = "bb"
    with pytest.raises(EngineError, match="serves another model"):
        async with pooled(engines):
            pass


async def test_an_engine_whose_model_is_refused_or_fails_the_gate_is_used_unfused(engines: list[FakeEngine]) -> None:
    engines[0].fusable = False

    async def failing(engine: Engine) -> SelfCheck:
        return SelfCheck(False, engine.refusal or "it differs by 0.5")

    async with pooled(engines, failing) as pool:
        assert not pool.fusable
        assert pool.refusal == "it has a window"
        assert [each["refusal"] for each in await pool.describe()] == ["it has a window", "it differs by 0.5"]
        assert await answer(pool)


async def test_a_closed_answer_frees_its_engine(engines: list[FakeEngine]) -> None:
    async with pooled(engines[:1]) as pool:
        pieces = pool.generate(PROMPT, Sampling(400))
        await anext(pieces)
        await pieces.aclose()
        assert [member.running for member in pool._members] == [0]
