"""Codec speed and savings on a real model's chunks, one core, CPU seconds, against plain deflate in the same run.

Encode is from strided token-major bf16 to file bytes, decode from file bytes to strided token-major bf16, checksums
and headers included.
"""

import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from isal import igzip_lib

from store import KVChunk, warm_up
from store.codec import chain_names
from tests.store.files import encode, read_all, reader
from tests.store.test_real_kv import chunk_of, real_kv

__all__ = ["real_kv"]
RESULTS = Path("bench-results/codec.json")


def cpu_seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """Least CPU time of a call over all threads."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def of_chain(chunk: KVChunk, chain: str) -> dict[str, float]:
    file = encode(chunk, chain)
    megabytes = chunk.raw_bytes / 1e6
    return {
        "saved": 1 - len(file) / chunk.raw_bytes,
        "encode_mb_s": megabytes / cpu_seconds(lambda: encode(chunk, chain)),
        "decode_mb_s": megabytes / cpu_seconds(lambda: read_all(reader(file))),
    }


def of_plain(chunk: KVChunk, pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> dict[str, float]:
    raw = chunk.data.tobytes()
    packed, megabytes = pack(raw), len(raw) / 1e6
    return {
        "saved": 1 - len(packed) / len(raw),
        "encode_mb_s": megabytes / cpu_seconds(lambda: pack(raw), 1),
        "decode_mb_s": megabytes / cpu_seconds(lambda: unpack(packed)),
    }


@pytest.mark.bench
def test_codec(real_kv: np.ndarray[Any, Any]) -> None:
    warm_up()
    token_major = np.ascontiguousarray(real_kv[:, :, :, 300:].transpose(0, 1, 3, 2, 4))
    chunk = chunk_of(token_major.transpose(0, 1, 3, 2, 4), 0, 512)
    table = {chain: of_chain(chunk, chain) for chain in chain_names()}
    table["raw zlib-1"] = of_plain(chunk, lambda raw: zlib.compress(raw, 1), zlib.decompress)
    table["raw igzip-1"] = of_plain(chunk, lambda raw: igzip_lib.compress(raw, 1), igzip_lib.decompress)
    for name, row in table.items():
        print(f"{name:15}" + "".join(f"{column} {value:8.3f}  " for column, value in row.items()))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(table, indent=1))
    assert table["a4-deflate"]["saved"] >= 0.335
