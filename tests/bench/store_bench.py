"""What the store adds to the codec: reading from each tier, putting, two threads, and against computing it again."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store import ChunkReader, KVChunk, LookupResult, StoreConfig, TieredStore, chunk_key, warm_up
from store.deflate import Backend
from tests.bench.codec_bench import strided
from tests.store.conftest import FINGERPRINT
from tests.store.files import encode, reader
from tests.store.test_churn import churned
from tests.store.test_real_kv import LAYOUT, chunk_of, real_kv

__all__ = ["real_kv"]
RESULTS = Path("bench-results/store.json")
TOKENS = 512


def seconds(call: Callable[[], object], repeats: int = 15) -> float:
    """Least elapsed time of a call."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def side_by_side(*calls: Callable[[], object], repeats: int = 30) -> list[float]:
    """Least CPU time of each call, taken in turns, so that other work on the machine slows all of them alike."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, taken in zip(calls, times, strict=True):
            started = time.process_time()
            call()
            taken.append(time.process_time() - started)
    return [min(taken) for taken in times]


def read(opened: ChunkReader, out: np.ndarray[Any, Any], layers: range = range(LAYOUT.layers)) -> None:
    for layer in layers:
        opened.read_layer(layer, out[0], out[1])


@pytest.fixture
def out() -> np.ndarray[Any, Any]:
    """Where a layer goes: rows of a token-major buffer, as the connector has it."""
    return np.zeros((2, TOKENS, LAYOUT.kv_heads, LAYOUT.head_dim), np.uint16).transpose(0, 2, 1, 3)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    import shutil
    import tempfile

    memory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    config = StoreConfig(memory, tmp_path / "disk", 1 << 30, 1 << 32, backend=Backend.SOFTWARE, threads=1)
    with TieredStore(replace(config, remote_url=(tmp_path / "remote").as_uri())) as store:
        yield store
    shutil.rmtree(memory)


def key_in(store: TieredStore, chunk: KVChunk, tier: str) -> KVChunk:
    """A copy of the chunk under a key of its own, in one tier only."""
    moved = replace(chunk, key=chunk_key(FINGERPRINT, tier, [0]))
    store.put(moved)
    store.settle()
    if tier != "memory":
        store.control.demote([moved.key], tier)
    assert store.lookup(moved.key) is LookupResult(tier)
    return moved


@pytest.mark.bench
def test_tiers(real_kv: np.ndarray[Any, Any], store: TieredStore, out: np.ndarray[Any, Any], model_dir: Path) -> None:
    warm_up()
    chunk = chunk_of(strided(real_kv[:, :, :, 300:]), 0, TOKENS)
    file = encode(chunk)
    in_memory = key_in(store, chunk, "memory")

    def load() -> None:
        with store.open(in_memory.key, FINGERPRINT) or pytest.fail("a miss") as opened:
            read(opened, out)

    decode, memory = side_by_side(lambda: read(reader(file), out), load)
    results = {"file_mb": len(file) / 1e6, "decode_ms": decode * 1e3, "memory_ms": memory * 1e3}
    results["memory_over_decode"] = memory / decode
    results["open_us"] = seconds(lambda: store.open(in_memory.key, FINGERPRINT), 50) * 1e6
    results["miss_us"] = seconds(lambda: store.lookup(chunk_key(FINGERPRINT, "none", [1])), 50) * 1e6
    for tier in ("disk", "remote"):
        results[f"{tier}_ms"] = first_read(store, chunk, tier, out) * 1e3
    results |= puts(store, chunk) | threads(file, out)
    results["prefill_ms"] = prefill(model_dir) * 1e3
    results["load_over_prefill"] = results["memory_ms"] / results["prefill_ms"]
    for name, value in results.items():
        print(f"{name:24}{value:12.3f}")
    save("tiers", results)
    assert results["memory_over_decode"] <= 1.3


def first_read(store: TieredStore, chunk: KVChunk, tier: str, out: np.ndarray[Any, Any]) -> float:
    """Reading a chunk that only `tier` has; the best of three."""

    def once() -> float:
        moved = key_in(store, chunk, tier)
        started = time.perf_counter()
        with store.open(moved.key, FINGERPRINT) or pytest.fail("a miss") as opened:
            read(opened, out)
        took = time.perf_counter() - started
        store.settle()
        store.delete(moved.key)
        return took

    return min(once() for _ in range(3))


def puts(store: TieredStore, chunk: KVChunk) -> dict[str, float]:
    """A new chunk, encoding apart, and one that is there already."""
    encoding = seconds(lambda: encode(chunk), 5)
    taken = []
    for number in range(5):
        fresh = replace(chunk, key=chunk_key(FINGERPRINT, "put", [number]))
        started = time.perf_counter()
        store.put(fresh)
        taken.append(time.perf_counter() - started)
    again = seconds(lambda: store.put(fresh), 5)
    return {"encode_ms": encoding * 1e3, "put_ms": min(taken) * 1e3, "put_duplicate_ms": again * 1e3}


def threads(file: bytes, out: np.ndarray[Any, Any]) -> dict[str, float]:
    """Decoding by two threads, layers dealt out, against one; means something only while both cores are free."""
    half = LAYOUT.layers // 2
    opened = reader(file)
    outs = [out.copy(), out.copy()]
    with ThreadPoolExecutor(2) as pool:

        def both() -> None:
            list(pool.map(read, (opened, opened), outs, (range(half), range(half, LAYOUT.layers))))

        pairs = [(seconds(lambda: read(opened, out), 1), seconds(both, 1)) for _ in range(30)]
    one, two = min(first for first, _ in pairs), min(second for _, second in pairs)
    return {"one_thread_ms": one * 1e3, "two_threads_ms": two * 1e3, "two_threads_speedup": one / two}


def prefill(model_dir: Path) -> float:
    """Computing the same number of tokens, by the model in torch on all cores."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    ids = torch.arange(1000, 1000 + TOKENS)[None]
    with torch.inference_mode():
        return seconds(lambda: model(ids, use_cache=True, logits_to_keep=1), 3)


@pytest.mark.bench
@pytest.mark.timeout(900)
def test_a_minute_of_eight_processes(tmp_path: Path) -> None:
    save("hammer", dict(churned("hammer", tmp_path, 11, 8, 60)))


@pytest.mark.bench
@pytest.mark.timeout(900)
def test_a_thousand_kills(tmp_path: Path) -> None:
    save("kills", dict(churned("kill", tmp_path, 99, 1000)))


def save(part: str, results: dict[str, Any]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known | {part: results}, indent=1))
