import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from store import KVChunk, KVDType, LookupResult, StoreConfig, StoreFull, TieredStore, chunk_key
from store.deflate import Backend
from tests.store.conftest import FINGERPRINT
from tests.store.files import encode, read_all

MakeChunk = Callable[..., KVChunk]


@pytest.fixture
def store(config: StoreConfig) -> TieredStore:
    return TieredStore(config)


def file_of(root: Path, chunk: KVChunk) -> Path:
    return root / chunk.key[:2] / f"{chunk.key}.kvc"


def damage(config: StoreConfig, chunk: KVChunk, change: Callable[[bytes], bytes]) -> None:
    """Change the chunk's file in both tiers."""
    for root in (config.memory_dir, config.disk_dir):
        path = file_of(root, chunk)
        path.write_bytes(change(path.read_bytes()))


def misses(store: TieredStore) -> dict[str, int]:
    return dict(store.stats().misses)


def test_put_then_open(store: TieredStore, make_chunk: MakeChunk) -> None:
    chunk = make_chunk(300)
    result = store.put(chunk)
    assert result.created
    assert result.raw_bytes == chunk.raw_bytes == chunk.data.nbytes
    assert store.lookup(chunk.key) is LookupResult.MEMORY
    with store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss") as reader:
        np.testing.assert_array_equal(read_all(reader), chunk.data)
    stats = store.stats()
    assert (stats.tiers["memory"].chunks, stats.tiers["memory"].bytes) == (1, result.stored_bytes)
    assert stats.tiers["memory"].hits == 1
    assert stats.decoded_bytes == stats.raw_bytes == chunk.raw_bytes
    assert stats.saved == 1 - result.stored_bytes / result.raw_bytes
    assert misses(store) == {}


def test_a_second_put_costs_nothing(store: TieredStore, make_chunk: MakeChunk) -> None:
    first = store.put(make_chunk())
    again = store.put(make_chunk())
    assert (again.created, again.stored_bytes) == (False, first.stored_bytes)
    assert store.stats().raw_bytes == first.raw_bytes


def test_absent_is_a_counted_miss(store: TieredStore, make_chunk: MakeChunk) -> None:
    assert store.open(make_chunk().key, FINGERPRINT) is None
    assert store.lookup(make_chunk().key) is LookupResult.MISS
    assert misses(store) == {"absent": 1}


def test_contains_many_counts_nothing(store: TieredStore, make_chunk: MakeChunk) -> None:
    store.put(make_chunk(seed=1))
    assert store.contains_many([make_chunk(seed=seed).key for seed in range(3)]) == [False, True, False]
    assert misses(store) == {}


def test_another_fingerprint_misses_and_keeps_the_file(store: TieredStore, make_chunk: MakeChunk) -> None:
    chunk = make_chunk()
    store.put(chunk)
    assert store.open(chunk.key, "0" * 64) is None
    assert misses(store) == {"stale": 1}
    assert store.open(chunk.key, FINGERPRINT) is not None


def test_a_stale_chunk_is_replaced_by_put(store: TieredStore, make_chunk: MakeChunk) -> None:
    old, new = make_chunk(), make_chunk(fingerprint="0" * 64)
    store.put(old)
    assert store.put(new).created
    assert store.open(new.key, "0" * 64) is not None
    assert store.open(old.key, FINGERPRINT) is None


@pytest.mark.parametrize("keep", [0, 1, 150, 250, -1])
def test_a_truncated_file_is_a_miss_and_goes(
    store: TieredStore, config: StoreConfig, make_chunk: MakeChunk, keep: int
) -> None:
    chunk = make_chunk()
    store.put(chunk)
    damage(config, chunk, lambda file: file[:keep])
    assert store.open(chunk.key, FINGERPRINT) is None
    assert misses(store) == {"truncated": 1}
    assert not file_of(config.memory_dir, chunk).exists()
    assert not file_of(config.disk_dir, chunk).exists()
    assert store.put(chunk).created


def test_a_file_under_another_key_is_a_miss_and_goes(
    store: TieredStore, config: StoreConfig, make_chunk: MakeChunk
) -> None:
    one, other = make_chunk(seed=1), make_chunk(seed=2)
    store.put(one)
    store.put(other)
    for root in (config.memory_dir, config.disk_dir):
        os.replace(file_of(root, one), file_of(root, other))
    assert store.open(other.key, FINGERPRINT) is None
    assert misses(store) == {"bad_header": 1}
    assert store.lookup(other.key) is LookupResult.MISS


def test_garbage_is_a_miss_and_goes(store: TieredStore, config: StoreConfig, make_chunk: MakeChunk) -> None:
    chunk = make_chunk()
    store.put(chunk)
    damage(config, chunk, lambda file: os.urandom(5000))
    assert store.open(chunk.key, FINGERPRINT) is None
    assert misses(store) == {"bad_header": 1}


def test_a_newer_format_is_a_miss_and_stays(store: TieredStore, config: StoreConfig, make_chunk: MakeChunk) -> None:
    chunk = make_chunk()
    store.put(chunk)
    damage(config, chunk, lambda file: file[:8] + b"\2" + file[9:])
    assert store.open(chunk.key, FINGERPRINT) is None
    assert misses(store) == {"unsupported": 1}
    assert file_of(config.disk_dir, chunk).exists()


def test_a_bad_memory_file_is_served_from_disk(store: TieredStore, config: StoreConfig, make_chunk: MakeChunk) -> None:
    chunk = make_chunk()
    for root in (config.memory_dir, config.disk_dir):
        file_of(root, chunk).parent.mkdir(parents=True)
        file_of(root, chunk).write_bytes(encode(chunk))
    file_of(config.memory_dir, chunk).write_bytes(b"garbage" * 100)
    with store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss") as reader:
        np.testing.assert_array_equal(read_all(reader), chunk.data)
    assert misses(store) == {}


def test_discard_removes_and_counts(store: TieredStore, make_chunk: MakeChunk) -> None:
    chunk = make_chunk()
    store.put(chunk)
    store.discard(chunk.key, "corrupt")
    assert store.lookup(chunk.key) is LookupResult.MISS
    assert misses(store) == {"corrupt": 1}
    assert store.stats().counters["discards"] == 1


def test_delete(store: TieredStore, make_chunk: MakeChunk) -> None:
    chunk = make_chunk()
    store.put(chunk)
    assert store.delete(chunk.key)
    assert not store.delete(chunk.key)
    assert store.stats().tiers["memory"].chunks == 0


def test_a_reader_outlives_delete(store: TieredStore, make_chunk: MakeChunk) -> None:
    chunk = make_chunk(300)
    store.put(chunk)
    reader = store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")
    store.delete(chunk.key)
    np.testing.assert_array_equal(read_all(reader), chunk.data)


def test_a_reader_outlives_its_file_being_replaced(
    store: TieredStore, config: StoreConfig, make_chunk: MakeChunk
) -> None:
    one, other = make_chunk(300, seed=1), make_chunk(300, seed=2)
    store.put(one)
    store.put(other)
    reader = store.open(one.key, FINGERPRINT) or pytest.fail("a miss")
    os.replace(file_of(config.memory_dir, other), file_of(config.memory_dir, one))
    np.testing.assert_array_equal(read_all(reader), one.data)
    again = store.open(one.key, FINGERPRINT) or pytest.fail("disk has it still")
    np.testing.assert_array_equal(read_all(again), one.data)


def test_pressure_demotes_the_least_recently_used(config: StoreConfig, make_chunk: MakeChunk) -> None:
    chunks = [make_chunk(64, seed=seed) for seed in range(8)]
    size = len(encode(chunks[0]))
    store = TieredStore(replace(config, memory_capacity_bytes=5 * size + size // 2))
    for chunk in chunks[:5]:
        store.put(chunk)
    assert store.open(chunks[0].key, FINGERPRINT) is not None
    store.put(chunks[5])
    store.settle()
    assert store.lookup(chunks[0].key) is LookupResult.MEMORY
    assert store.lookup(chunks[1].key) is LookupResult.DISK
    stats = store.stats()
    assert stats.tiers["memory"].bytes <= stats.tiers["memory"].capacity_bytes
    assert (stats.counters["demotions"], stats.tiers["disk"].chunks) == (1, 6)
    assert store.contains_many([chunk.key for chunk in chunks[:6]]) == [True] * 6


def test_losing_the_memory_tier_loses_nothing(config: StoreConfig, make_chunk: MakeChunk) -> None:
    chunks = [make_chunk(64, seed=seed) for seed in range(3)]
    with TieredStore(config) as store:
        for chunk in chunks:
            store.put(chunk)
    shutil.rmtree(config.memory_dir)
    with TieredStore(config) as store:
        for chunk in chunks:
            reader = store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")
            np.testing.assert_array_equal(read_all(reader), chunk.data)
        assert store.stats().tiers["disk"].hits == 3


def test_a_second_put_brings_back_a_lost_disk_copy(
    store: TieredStore, config: StoreConfig, make_chunk: MakeChunk
) -> None:
    store.put(make_chunk())
    file_of(config.disk_dir, make_chunk()).unlink()
    assert not store.put(make_chunk()).created
    assert file_of(config.disk_dir, make_chunk()).exists()


def test_a_refusing_disk_leaves_the_chunk_in_memory(config: StoreConfig, make_chunk: MakeChunk) -> None:
    store = TieredStore(replace(config, disk_capacity_bytes=100))
    assert store.put(make_chunk()).created
    assert store.lookup(make_chunk().key) is LookupResult.MEMORY
    assert not file_of(config.disk_dir, make_chunk()).exists()


def test_use_on_disk_promotes(config: StoreConfig, make_chunk: MakeChunk) -> None:
    chunk = make_chunk(64)
    store = TieredStore(config)
    path = file_of(config.disk_dir, chunk)
    path.parent.mkdir()
    path.write_bytes(encode(chunk))
    assert store.lookup(chunk.key) is LookupResult.DISK
    assert not store.put(chunk).created
    assert store.open(chunk.key, FINGERPRINT) is not None
    store.settle()
    assert store.lookup(chunk.key) is LookupResult.MEMORY
    stats = store.stats()
    assert (stats.tiers["disk"].hits, stats.counters["promotions"]) == (1, 1)
    np.testing.assert_array_equal(read_all(store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")), chunk.data)


def test_a_full_disk_evicts_the_least_recently_used(config: StoreConfig, make_chunk: MakeChunk) -> None:
    chunks = [make_chunk(64, seed=seed) for seed in range(10)]
    size = len(encode(chunks[0]))
    store = TieredStore(
        replace(config, memory_capacity_bytes=2 * size + size // 2, disk_capacity_bytes=3 * size + size // 2)
    )
    for chunk in chunks:
        store.put(chunk)
    store.settle()
    stats = store.stats()
    for tier in stats.tiers.values():
        assert 0 < tier.bytes <= tier.capacity_bytes
    assert stats.counters["evictions"] > 0
    assert store.lookup(chunks[-1].key) is LookupResult.MEMORY


def test_a_chunk_larger_than_memory_goes_to_disk(config: StoreConfig, make_chunk: MakeChunk) -> None:
    store = TieredStore(replace(config, memory_capacity_bytes=100))
    store.put(make_chunk())
    assert store.lookup(make_chunk().key) is LookupResult.DISK
    assert store.open(make_chunk().key, FINGERPRINT) is not None


def test_no_room_anywhere_is_refused_and_counted(config: StoreConfig, make_chunk: MakeChunk) -> None:
    store = TieredStore(replace(config, memory_capacity_bytes=100, disk_capacity_bytes=100))
    with pytest.raises(StoreFull, match="fit in no tier"):
        store.put(make_chunk())
    assert store.stats().counters["refusals"] == 1
    assert not store.contains_many([make_chunk().key])[0]


def test_chunks_survive_a_restart(config: StoreConfig, make_chunk: MakeChunk) -> None:
    chunk = make_chunk(300)
    with TieredStore(config) as first:
        first.put(chunk)
    with TieredStore(replace(config, codec="raw")) as second:
        reader = second.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")
        assert reader.info.codec == "a4-deflate"
        np.testing.assert_array_equal(read_all(reader), chunk.data)


@pytest.mark.parametrize("dtype", [KVDType.FP16, KVDType.FP32])
def test_other_dtypes_take_the_wide_chain(config: StoreConfig, make_chunk: MakeChunk, dtype: KVDType) -> None:
    chunk = make_chunk(40, dtype=dtype)
    with TieredStore(replace(config, threads=2)) as store:
        store.put(chunk)
        reader = store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")
        assert reader.info.codec == "planes-deflate"
        np.testing.assert_array_equal(read_all(reader), chunk.data)


def test_another_tenants_key_misses(store: TieredStore, make_chunk: MakeChunk) -> None:
    store.put(make_chunk())
    assert store.open(chunk_key(FINGERPRINT, "other tenant", [0, 20]), FINGERPRINT) is None


def test_settings_that_cannot_work_are_named(config: StoreConfig, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'lz4': expected one of raw, a4-deflate"):
        replace(config, codec="lz4")
    with pytest.raises(ValueError, match="memory_capacity_bytes is 0"):
        replace(config, memory_capacity_bytes=0)
    with pytest.raises(ValueError, match="are both"):
        replace(config, disk_dir=config.memory_dir)
    with pytest.raises(ValueError, match="fast"):
        replace(config, backend="fast")
    assert StoreConfig(tmp_path / "a", tmp_path / "b", backend="software").backend is Backend.SOFTWARE  # type: ignore[arg-type]
