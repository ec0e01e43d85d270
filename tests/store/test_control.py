"""The verbs of operators, over a memory, a disk and a remote tier."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from store import KVChunk, LookupResult, StoreConfig, TieredStore
from store.control import Outcome
from store.keys import ChunkKey
from store.stats import Contents
from tests.store.conftest import FINGERPRINT
from tests.store.files import read_all

MakeChunk = Callable[..., KVChunk]
MEMORY, DISK, REMOTE, MISS = LookupResult


@pytest.fixture
def store(config: StoreConfig, tmp_path: Path) -> Iterator[TieredStore]:
    with TieredStore(replace(config, remote_url=(tmp_path / "remote").as_uri())) as store:
        store.settle()
        yield store


@pytest.fixture
def keys(store: TieredStore, make_chunk: MakeChunk) -> list[ChunkKey]:
    for seed in range(3):
        store.put(make_chunk(64, seed=seed))
    return [make_chunk(64, seed=seed).key for seed in range(3)]


def where(store: TieredStore, keys: list[ChunkKey]) -> list[LookupResult]:
    return list(store.control.lookup(keys).values())


def test_a_chunk_sinks_and_comes_back_bit_for_bit(
    store: TieredStore, keys: list[ChunkKey], make_chunk: MakeChunk
) -> None:
    for tier in ("disk", "remote"):
        assert store.control.demote(keys[:1], tier).count(Outcome.DONE) == 1
        assert where(store, keys) == [LookupResult(tier), MEMORY, MEMORY]
    with store.open(keys[0], FINGERPRINT) or pytest.fail("a miss") as reader:
        np.testing.assert_array_equal(read_all(reader), make_chunk(64, seed=0).data)
    store.settle()
    assert where(store, keys) == [MEMORY, MEMORY, MEMORY]
    (record,) = store.control.stat(keys[:1])
    assert sorted(record.places) == ["disk", "memory", "remote"]
    assert (record.hits, record.tokens) == (1, 64)


def test_a_dry_run_tells_and_changes_nothing(store: TieredStore, keys: list[ChunkKey], make_chunk: MakeChunk) -> None:
    absent = make_chunk(seed=9).key
    size = store.control.stat(keys[:1])[0].places["memory"]
    for verb in (store.control.demote, store.control.evict):
        result = verb([*keys[:1], absent], dry_run=True)
        assert list(result.outcomes.values()) == [Outcome.DONE, Outcome.ABSENT]
        assert (result.dry_run, result.bytes) == (True, size)
    store.control.pin(keys, dry_run=True)
    store.control.demote(keys, after_s=0.001, dry_run=True)
    time.sleep(0.01)
    store.sweep()
    assert where(store, keys) == [MEMORY] * 3
    assert store.stats().pins == 0


def test_pinned_chunks_stay_until_unpinned_or_deleted(store: TieredStore, keys: list[ChunkKey]) -> None:
    store.control.pin(keys)
    assert store.control.demote(keys).count(Outcome.PINNED) == 3
    assert store.control.evict(keys).count(Outcome.PINNED) == 3
    store.control.unpin(keys[:1])
    assert list(store.control.evict(keys).outcomes.values()) == [Outcome.DONE, Outcome.PINNED, Outcome.PINNED]
    assert store.delete(keys[1])
    assert where(store, keys) == [MISS, MISS, MEMORY]


def test_pinned_chunks_survive_pressure(config: StoreConfig, make_chunk: MakeChunk) -> None:
    size = TieredStore(config).put(make_chunk(64)).stored_bytes
    with TieredStore(replace(config, memory_capacity_bytes=5 * size)) as store:
        hot = make_chunk(64).key
        store.control.pin([hot])
        for seed in range(1, 20):
            store.put(make_chunk(64, seed=seed))
        store.settle()
        assert store.lookup(hot) is MEMORY
        assert 0 < store.stats().tiers["memory"].bytes <= 5 * size


def test_a_promotion_with_a_time_to_live_sinks_again(store: TieredStore, keys: list[ChunkKey]) -> None:
    store.control.demote(keys, "remote")
    store.control.promote(keys[:1], ttl_s=0.2)
    assert where(store, keys) == [MEMORY, REMOTE, REMOTE]
    assert store.control.demote(keys[:1]).count(Outcome.PINNED) == 1
    time.sleep(0.25)
    store.sweep()
    assert where(store, keys) == [DISK, REMOTE, REMOTE]


def test_appointments(store: TieredStore, keys: list[ChunkKey]) -> None:
    assert store.control.demote(keys, "remote", after_s=0.05).count(Outcome.SCHEDULED) == 3
    store.sweep()
    assert where(store, keys) == [MEMORY] * 3
    time.sleep(0.06)
    store.sweep()
    assert where(store, keys) == [REMOTE] * 3
    store.control.promote(keys[:1], "disk", after_s=0.01)
    store.control.evict(keys[2:], after_s=0.01)
    time.sleep(0.02)
    store.sweep()
    assert where(store, keys) == [DISK, REMOTE, MISS]


def test_prefetching_goes_on_in_the_background(store: TieredStore, keys: list[ChunkKey]) -> None:
    store.control.demote(keys[:2], "remote")
    assert list(store.control.prefetch(keys).outcomes.values()) == [Outcome.STARTED, Outcome.STARTED, Outcome.DONE]
    store.settle()
    assert where(store, keys) == [MEMORY] * 3


def test_eviction_from_one_tier(store: TieredStore, keys: list[ChunkKey]) -> None:
    store.control.evict(keys[:1], "memory")
    assert where(store, keys[:1]) == [DISK]
    with pytest.raises(ValueError, match="'tape': expected one of memory, disk, remote"):
        store.control.evict(keys, "tape")


def test_verifying_removes_the_bad_copy_only(store: TieredStore, keys: list[ChunkKey], config: StoreConfig) -> None:
    path = config.disk_dir / keys[1][:2] / f"{keys[1]}.kvc"
    file = bytearray(path.read_bytes())
    file[-3] ^= 1
    path.write_bytes(file)
    assert store.control.verify(keys, dry_run=True).count(Outcome.CORRUPT) == 1
    assert path.exists()
    assert list(store.control.verify(keys).outcomes.values()) == [Outcome.DONE, Outcome.CORRUPT, Outcome.DONE]
    assert not path.exists()
    assert where(store, keys) == [MEMORY] * 3


def test_the_index_is_rebuilt_from_the_files(
    store: TieredStore, keys: list[ChunkKey], config: StoreConfig, make_chunk: MakeChunk
) -> None:
    store.control.demote(keys[:1], "remote")
    before = store.stats().tiers
    store.close()
    for path in config.disk_dir.glob("index*"):
        path.unlink()
    with TieredStore(replace(config, remote_url=(config.disk_dir.parent / "remote").as_uri())) as again:
        again.settle()
        assert {name: (tier.chunks, tier.bytes) for name, tier in again.stats().tiers.items()} == {
            name: (tier.chunks, tier.bytes) for name, tier in before.items()
        }
        assert [record.tokens for record in again.control.stat(keys)] == [0, 64, 64]
        (config.disk_dir / keys[1][:2] / f"{keys[1]}.kvc").unlink()
        assert again.control.rebuild_index() == 4
        assert sorted(again.control.stat(keys[1:2])[0].places) == ["memory"]


def test_an_index_lost_under_way_is_rebuilt(store: TieredStore, keys: list[ChunkKey], config: StoreConfig) -> None:
    before = {name: (tier.chunks, tier.bytes) for name, tier in store.stats().tiers.items()}
    for path in config.disk_dir.glob("index*"):
        path.unlink()
    assert store.stats().tiers["disk"].chunks == 0
    store.sweep()
    store.settle()
    assert {name: (tier.chunks, tier.bytes) for name, tier in store.stats().tiers.items()} == before


def test_idle_chunks_sink(config: StoreConfig, make_chunk: MakeChunk, tmp_path: Path) -> None:
    url = (tmp_path / "remote").as_uri()
    with TieredStore(replace(config, remote_url=url, memory_idle_s=0.1, disk_idle_s=3600)) as store:
        store.put(make_chunk(64, seed=1))
        time.sleep(0.15)
        store.put(make_chunk(64, seed=2))
        store.sweep()
        assert where(store, [make_chunk(64, seed=seed).key for seed in (1, 2)]) == [DISK, MEMORY]


def test_pressure_on_disk_sinks_into_the_remote_tier(
    config: StoreConfig, make_chunk: MakeChunk, tmp_path: Path
) -> None:
    url = (tmp_path / "remote").as_uri()
    size = TieredStore(config).put(make_chunk(64)).stored_bytes
    small = replace(config, memory_capacity_bytes=3 * size, disk_capacity_bytes=4 * size, remote_url=url)
    with TieredStore(small) as store:
        chunks = [make_chunk(64, seed=seed) for seed in range(12)]
        for chunk in chunks:
            store.put(chunk)
        store.settle()
        assert store.contains_many([chunk.key for chunk in chunks]) == [True] * 12
        assert "evictions" not in store.stats().counters
        for chunk in chunks:
            with store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss") as reader:
                np.testing.assert_array_equal(read_all(reader), chunk.data)
        store.settle()
        for tier in store.stats().tiers.values():
            assert tier.bytes <= tier.capacity_bytes


def test_groups_by_tag(store: TieredStore, keys: list[ChunkKey]) -> None:
    store.control.tag(keys[:2], "session")
    store.control.demote(store.control.tagged("session"))
    assert where(store, keys) == [DISK, DISK, MEMORY]
    assert store.control.stat(keys[:1])[0].tags == ("session",)
    assert [record.key for record in store.control.ls(limit=2)] == sorted(keys)[:2]


def test_what_hits_save(store: TieredStore, keys: list[ChunkKey], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("store.speed", "store.tiered"):
        monkeypatch.setattr(f"{module}.SMALLEST", 64)  # the chunks of this test
    store.tell_prefill_speed(640.0)
    for _ in range(2):
        with store.open(keys[0], FINGERPRINT) or pytest.fail("a miss") as reader:
            read_all(reader)
    store.settle()
    (record,) = store.control.stat(keys[:1])
    assert record.saved_s == pytest.approx(0.1)
    assert 0.1 < record.seconds_saved <= 0.2
    estimate = store.worth_loading(64, "memory")
    assert not store.worth_loading(64, "memory", prefill_tokens_per_s=1e9).worth_loading
    assert estimate.prefill_s == pytest.approx(0.1)
    assert estimate.load_s is not None
    memory = store.stats().break_even["memory"]
    assert (memory.prefill_tokens_per_s, memory.worth_loading) == (640.0, True)
    assert (memory.loaded, memory.computed) == (1, 1)
    assert memory.load_tokens_per_s == pytest.approx(64 / estimate.load_s)
    assert store.control.contents() == Contents(3, 3 * record.raw_bytes, 2, pytest.approx(record.seconds_saved))


def test_other_processes_see_the_estimates(store: TieredStore, keys: list[ChunkKey], config: StoreConfig) -> None:
    store.tell_prefill_speed(640.0)
    store.worth_loading(500, "disk")
    store.settle()
    with TieredStore(config) as other:
        other.worth_loading(500, "disk")
        other.settle()
        other.worth_loading(500, "disk")
        disk = other.stats().break_even["disk"]
        assert (disk.load_tokens_per_s, disk.prefill_tokens_per_s, disk.loaded) == (None, 640.0, 3)
        other.tell_prefill_speed(100.0)
        store.sweep()
        assert store.saved_s(100) == 1.0


def test_what_fell_due_while_no_process_had_the_store_open(
    store: TieredStore, keys: list[ChunkKey], config: StoreConfig
) -> None:
    store.control.demote(keys[:2], "disk", after_s=0.01)
    store.close()
    time.sleep(0.02)
    with TieredStore(config) as again:
        again.settle()
        assert where(again, keys) == [DISK, DISK, MEMORY]
