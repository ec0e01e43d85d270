"""Media that are down, slow, full, read-only or give half a file: a counted miss or refusal, and all else works."""

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from store import KVChunk, LookupResult, StoreConfig, StoreFull, TieredStore
from store.database import Database
from store.errors import ChunkUnavailable
from store.keys import ChunkKey
from store.tier import Tier
from store.wrapped import WrappedTier
from tests.store.conftest import FINGERPRINT
from tests.store.faults import BreakingTier, DownTier, HalfTier, QuotaTier
from tests.store.files import read_all

MakeChunk = Callable[..., KVChunk]


class ReadOnlyTier(WrappedTier):
    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def delete(self, key: ChunkKey) -> bool:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def around(name: str, wrapper: Callable[[Tier], Tier]) -> Callable[[Tier], Tier]:
    return lambda tier: wrapper(tier) if tier.name == name else tier


@pytest.fixture
def remote(config: StoreConfig, tmp_path: Path) -> StoreConfig:
    return replace(config, remote_url=(tmp_path / "remote").as_uri())


def put_cold(config: StoreConfig, chunk: KVChunk) -> None:
    """The chunk in the remote tier only."""
    with TieredStore(config) as store:
        store.put(chunk)
        store.control.demote([chunk.key], "remote")


def test_a_remote_store_that_is_down_costs_one_try(remote: StoreConfig, make_chunk: MakeChunk) -> None:
    put_cold(remote, make_chunk(seed=1))
    downs: list[DownTier] = []

    def down(tier: Tier) -> Tier:
        downs.append(DownTier(tier))
        downs[-1].down = True
        return downs[-1]

    with TieredStore(remote, around("remote", down)) as store:
        for seed in range(5):
            assert store.open(make_chunk(seed=seed).key, FINGERPRINT) is None
        assert store.put(make_chunk(seed=7)).created
        assert store.open(make_chunk(seed=7).key, FINGERPRINT) is not None
        stats = store.stats()
        assert stats.misses == {"io_error": 5}
        assert downs[0].asked == 1
        assert stats.counters["remote_skipped"] >= 4


def test_half_an_object_is_a_miss(remote: StoreConfig, make_chunk: MakeChunk) -> None:
    put_cold(remote, make_chunk(2000))
    with TieredStore(remote, around("remote", HalfTier)) as store:
        assert store.open(make_chunk(2000).key, FINGERPRINT) is None
        assert store.stats().misses == {"truncated": 1}


def test_an_object_that_breaks_off_is_unavailable_not_corrupt(remote: StoreConfig, make_chunk: MakeChunk) -> None:
    chunk = make_chunk(2000)
    put_cold(remote, chunk)
    with TieredStore(remote, around("remote", BreakingTier)) as store:
        reader = store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")
        with pytest.raises(ChunkUnavailable, match="connection reset"):
            read_all(reader)
        store.settle()
        assert store.lookup(chunk.key) is LookupResult.REMOTE
    with TieredStore(remote) as store:
        np.testing.assert_array_equal(read_all(store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")), chunk.data)


def test_a_slow_remote_store_is_read_ahead(remote: StoreConfig, make_chunk: MakeChunk) -> None:
    chunk = make_chunk(20_000)
    put_cold(remote, chunk)
    with TieredStore(remote, around("remote", lambda tier: BreakingTier(tier, breaks=False))) as store:
        np.testing.assert_array_equal(read_all(store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")), chunk.data)
        store.settle()
        assert store.lookup(chunk.key) is LookupResult.MEMORY


def test_a_read_only_disk(config: StoreConfig, make_chunk: MakeChunk) -> None:
    with TieredStore(config) as store:
        store.put(make_chunk(seed=1))
        store.control.evict([make_chunk(seed=1).key], "memory")
    with TieredStore(config, around("disk", ReadOnlyTier)) as store:
        assert store.open(make_chunk(seed=1).key, FINGERPRINT) is not None
        assert store.put(make_chunk(seed=2)).created
        assert store.lookup(make_chunk(seed=2).key) is LookupResult.MEMORY
        store.delete(make_chunk(seed=1).key)
        counters = store.stats().counters
        assert (counters["disk_refusals"], counters["disk_write_errors"], counters["disk_delete_errors"]) == (1, 1, 2)


def test_everything_read_only_is_a_refusal(config: StoreConfig, make_chunk: MakeChunk) -> None:
    with TieredStore(config, ReadOnlyTier) as store, pytest.raises(StoreFull):
        store.put(make_chunk())


@pytest.mark.parametrize("tier", ["memory", "disk"])
def test_a_medium_fuller_than_the_tier_thinks(config: StoreConfig, make_chunk: MakeChunk, tier: str) -> None:
    size = TieredStore(config).put(make_chunk(64)).stored_bytes
    with TieredStore(config, around(tier, lambda inner: QuotaTier(inner, 4 * size))) as store:
        chunks = [make_chunk(64, seed=seed) for seed in range(12)]
        for chunk in chunks:
            assert store.put(chunk).created or chunk is chunks[0]
        for chunk in chunks[-3:]:
            with store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss") as reader:
                np.testing.assert_array_equal(read_all(reader), chunk.data)
        assert store.stats().counters[f"{tier}_write_errors"] > 0
        assert store.stats().tiers[tier].bytes <= 4 * size


def test_a_full_remote_store_is_left_out(remote: StoreConfig, make_chunk: MakeChunk) -> None:
    with TieredStore(remote, around("remote", lambda inner: QuotaTier(inner, 10))) as store:
        store.put(make_chunk())
        assert store.control.demote([make_chunk().key], "remote").outcomes[make_chunk().key].value == "refused"
        assert store.lookup(make_chunk().key) is LookupResult.MEMORY


@pytest.mark.timeout(60)
def test_a_full_disk_whose_index_is_not_writable_either(
    config: StoreConfig, make_chunk: MakeChunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making room must end, though the index names what has left for ever."""
    size = TieredStore(config).put(make_chunk(64)).stored_bytes
    with TieredStore(config, around("disk", lambda inner: QuotaTier(inner, 9 * size // 2))) as store:
        for seed in range(1, 4):
            store.put(make_chunk(64, seed=seed))
        store.settle()
        monkeypatch.setattr(Database, "write", lambda *_: False)
        assert store.put(make_chunk(64, seed=5)).created
        assert store.lookup(make_chunk(64, seed=5).key) is LookupResult.MEMORY
        store.control.evict([make_chunk(64, seed=5).key], "memory")
        assert store.lookup(make_chunk(64, seed=5).key) is LookupResult.DISK
