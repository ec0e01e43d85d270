import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from store import KVChunk, StoreConfig, TieredStore
from tests.store.conftest import FINGERPRINT

WRITER = """
import sys
from pathlib import Path
from store import KVDType, KVLayout, KVChunk, StoreConfig, TieredStore, chunk_key
from tests.store.conftest import FINGERPRINT, gaussian
layout = KVLayout(2, 2, 8, KVDType.BF16)
store = TieredStore(StoreConfig(Path(sys.argv[1]), Path(sys.argv[2]), 1 << 24, 1 << 26, backend="software"))
for seed in range(20):
    store.put(KVChunk(chunk_key(FINGERPRINT, "", [seed, 20]), FINGERPRINT, layout, 17, gaussian(layout, 20, seed)))
"""


def test_processes_putting_the_same_keys_leave_one_copy_each(
    config: StoreConfig, make_chunk: Callable[..., KVChunk]
) -> None:
    command = [sys.executable, "-c", WRITER, str(config.memory_dir), str(config.disk_dir)]
    writers = [subprocess.Popen(command) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    store = TieredStore(config)
    stats = store.stats()
    assert (stats.tiers["memory"].chunks, stats.tiers["disk"].chunks) == (20, 20)
    assert stats.counters["recovered_temporaries"] == 0
    for seed in range(20):
        chunk = make_chunk(20, seed=seed)
        out = np.empty((2, 2, 20, 8), np.uint16)
        (store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")).read_layer(1, out[0], out[1])
        np.testing.assert_array_equal(out, chunk.data[1])


def test_one_reader_serves_many_threads(config: StoreConfig, make_chunk: Callable[..., KVChunk]) -> None:
    chunk = make_chunk(600)
    store = TieredStore(config)
    store.put(chunk)
    reader = store.open(chunk.key, FINGERPRINT) or pytest.fail("a miss")

    def read(layer: int) -> bool:
        out = np.empty((2, 2, 600, 8), np.uint16)
        reader.read_layer(layer, out[0], out[1])
        return np.array_equal(out, chunk.data[layer])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, [0, 1] * 50))


def test_readers_racing_deletion_get_the_chunk_or_a_miss(
    config: StoreConfig, make_chunk: Callable[..., KVChunk]
) -> None:
    chunk = make_chunk(300)
    store = TieredStore(config)

    def read(_: int) -> bool:
        reader = store.open(chunk.key, FINGERPRINT)
        if reader is None:
            return True
        out = np.empty((2, 2, 300, 8), np.uint16)
        reader.read_layer(0, out[0], out[1])
        return np.array_equal(out, chunk.data[0])

    def churn(_: int) -> int:
        created = store.put(chunk).created
        store.delete(chunk.key)
        return created

    with ThreadPoolExecutor(4) as pool:
        reads = pool.map(read, range(200))
        churns = pool.map(churn, range(100))
        assert all(reads)
        assert sum(churns) > 0
    assert set(store.stats().misses) <= {"absent"}
