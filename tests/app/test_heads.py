"""Heads are stored when it pays, and given up when the engine cannot store them. The engine here fails on demand."""

import asyncio
from collections.abc import Sequence

import pytest

from app.engine_values import EngineError, Saved
from app.heads import Heads
from fuse.scheme import SaveStep

HEAD = (1, 2, 3)
FINGERPRINT = "f" * 64


class Engine:
    """Keeps the saves it is asked for; `error` is what the next ones come to."""

    def __init__(self) -> None:
        self.saves: list[SaveStep] = []
        self.error: Exception | None = None
        self.fusable = True

    async def save(self, steps: Sequence[SaveStep]) -> Saved:
        self.saves += steps
        if self.error is not None:
            raise self.error
        return Saved(1, 1)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def heads(engine: Engine) -> Heads:
    return Heads(engine, FINGERPRINT, "tenant")  # type: ignore[arg-type]


async def test_a_head_is_stored_when_it_is_asked_for_again(engine: Engine, heads: Heads) -> None:
    assert heads.segment(HEAD).key is None
    assert not engine.saves
    assert heads.segment(HEAD).key is None  # never waits
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    segment = heads.segment(HEAD)
    (step,) = engine.saves
    assert (step.token_ids, step.order.start, step.order.end) == (HEAD, 0, 3)
    assert (segment.tokens, segment.key) == (3, step.order.key)


async def test_what_nothing_is_known_of_is_not_stored(engine: Engine, heads: Heads) -> None:
    for number in range(50):
        assert heads.segment((*HEAD, number)).key is None
    assert not engine.saves


async def test_tenants_have_their_own(engine: Engine, heads: Heads) -> None:
    others = Heads(engine, FINGERPRINT, "other")  # type: ignore[arg-type]
    assert (await heads.stored(HEAD)).key != (await others.stored(HEAD)).key


async def test_a_head_that_cannot_be_stored_is_computed_and_tried_again(engine: Engine, heads: Heads) -> None:
    engine.error = EngineError("the store is full")
    assert (await heads.stored(HEAD)).key is None
    engine.error = None
    assert (await heads.stored(HEAD)).key is not None
    assert len(engine.saves) >= 2


async def test_a_lost_head_is_stored_again(engine: Engine, heads: Heads) -> None:
    await heads.stored(HEAD)
    heads.forget(HEAD)
    assert heads.segment(HEAD).key is None
    assert (await heads.stored(HEAD)).key is not None
    assert len(engine.saves) == 2


async def test_without_fusion_nothing_is_stored(engine: Engine, heads: Heads) -> None:
    engine.fusable = False
    assert (await heads.stored(HEAD)).key is None
    assert not engine.saves


async def test_stopping_abandons_a_save(engine: Engine, heads: Heads) -> None:
    heads.segment(HEAD)
    heads.segment(HEAD)
    await heads.stop()
    assert heads.segment(HEAD).key is None
