"""Tensor parallelism: two ranks with half of the KV heads each, over the same chunks as one."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from app.engine_local import LocalEngine
from app.engine_values import EngineConfig
from app.language import Language
from app.selfcheck import check_fusion, total_variation
from fuse.connector.config import FuseConfig
from store.config import StoreConfig
from store.keys import ChunkKey, chunk_key
from store.tiered import TieredStore
from tests.e2e.gate import PASSAGES
from tests.e2e.lab import Answer, Lab
from tests.e2e.models import TinyModel

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

ROUNDING = 0.02
"""float32, summed over the ranks in another order."""


@dataclass
class OwnLab(Lab):
    """A lab whose chunks have keys of their own, in a store that it shares with another."""

    salt: str = ""

    def key(self, passage: Sequence[int]) -> ChunkKey:
        return chunk_key(self.language.fingerprint, self.salt, passage)


@dataclass(frozen=True)
class Pair:
    """Engines of one rank and of two over one store, each with its own chunks of the same passages."""

    one: OwnLab
    two: OwnLab
    passages: list[list[int]]

    async def ask(self, engine: OwnLab, chunks: OwnLab, policy: str, **options: float) -> Answer:
        """Let `engine` answer over what `chunks` has stored."""
        plan = chunks.plan(self.passages, policy, **options)
        return await engine.ask(engine.prompt(self.passages), plan)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("parallel")
    TinyModel("llama", "llama").write(folder / "model", model_dir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        async with running(folder, 1) as one, running(folder, 2) as two:
            passages = await one.save(PASSAGES)
            await two.save(PASSAGES)
            yield Pair(one, two, passages)


@asynccontextmanager
async def running(folder: Path, ranks: int) -> AsyncIterator[OwnLab]:
    language = Language.load(folder / "model", "float32")
    store = StoreConfig(folder / "memory", folder / "disk", codec="raw")
    config = EngineConfig(language.model, "float32", FuseConfig(store).to_extra_config(), max_model_len=1024)
    engine = LocalEngine(replace(config, num_gpu_blocks=32, tensor_parallel_size=ranks))
    try:
        await engine.start()
        assert engine.fusable, engine.refusal
        yield OwnLab(engine, language, store, salt=f"by {ranks}")
    finally:
        await engine.stop()


async def test_two_ranks_pass_the_gate(pair: Pair) -> None:
    check = await check_fusion(pair.two.engine, pair.two.language)
    assert check.passed, check
    assert check.control > 3 * max(check.exact_reuse, check.full_recompute)


async def test_the_shares_of_two_ranks_are_stored_as_one_chunk(pair: Pair) -> None:
    with TieredStore(pair.one.store) as store:
        for passage in pair.passages:
            with (
                store.open(pair.one.key(passage), pair.one.language.fingerprint) as by_one,
                store.open(pair.two.key(passage), pair.two.language.fingerprint) as by_two,
            ):
                assert by_one.info.layout == by_two.info.layout
                assert by_one.info.layout.kv_heads == 2
                one, two = (reader.read().view(np.float32) for reader in (by_one, by_two))
                assert np.allclose(one, two, atol=0.02)
                assert not np.allclose(one, two[:, :, ::-1], atol=0.02)  # heads are told apart
                assert np.allclose(by_one.scores(), by_two.scores(), rtol=0.05)


@pytest.mark.parametrize(
    ("policy", "options"), [("none", {}), ("hybrid", {"share": 0.3}), ("deviation", {"share": 0.3}), ("full", {})]
)
async def test_either_answers_alike_over_the_chunks_of_the_other(
    pair: Pair, policy: str, options: dict[str, float]
) -> None:
    expected = await pair.ask(pair.one, pair.one, policy, **options)
    for engine, chunks in ((pair.two, pair.one), (pair.one, pair.two), (pair.two, pair.two)):
        found = await pair.ask(engine, chunks, policy, **options)
        assert found.report["missed_chunks"] == 0
        assert found.report["recomputed"] == expected.report["recomputed"]
        assert total_variation(found.first, expected.first) < ROUNDING


async def test_chunks_matter(pair: Pair) -> None:
    """So that answering alike means something."""
    reused, exact = [await pair.ask(pair.two, pair.one, policy) for policy in ("none", "full")]
    assert total_variation(reused.first, exact.first) > 3 * ROUNDING


async def test_a_chunk_that_one_rank_cannot_read_is_recomputed_by_both(pair: Pair) -> None:
    """Ranks check only the sections of their own heads; one that computed alone would wait for the other for ever."""
    passage = pair.passages[0]
    for file in pair.two.files(pair.two.key(passage)):
        data = bytearray(file.read_bytes())
        data[-3000] ^= 0xFF  # in the values of the last head of the last layer
        file.write_bytes(data)
    found = await pair.ask(pair.two, pair.two, "none")
    assert found.report["missed_chunks"] == 1
    assert found.report["reused"] == sum(map(len, pair.passages[1:]))
