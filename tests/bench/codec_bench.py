"""Codec speed and savings on a real model's chunks, one core, CPU seconds, against plain deflate in the same run.

Encode is from strided token-major bf16 to file bytes, decode from file bytes to strided token-major bf16, checksums
and headers included.
"""

import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zstandard
from isal import igzip_lib

from app.eval.bench.result import Bar, BenchResult, Figure, Row
from store import KVChunk, KVDType, KVLayout, chunk_key, warm_up
from store.codec import chain_names
from tests.store.conftest import FINGERPRINT, gaussian
from tests.store.files import encode, read_all, reader
from tests.store.test_real_kv import chunk_of, real_kv

__all__ = ["real_kv"]
REAL = "SmolLM2, 512 tokens"


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
    raw = token_major(chunk)
    packed, megabytes = pack(raw), len(raw) / 1e6
    assert unpack(packed) == raw
    return {
        "saved": 1 - len(packed) / len(raw),
        "encode_mb_s": megabytes / cpu_seconds(lambda: pack(raw), 1),
        "decode_mb_s": megabytes / cpu_seconds(lambda: unpack(packed)),
    }


def byte_planes(raw: bytes, block: int) -> list[bytes]:
    """Every block's high bytes and then its low bytes, as the published rival does with 64 tokens a block."""
    values = np.frombuffer(raw, np.uint8).reshape(-1, 2)
    return [values[start : start + block, ::-1].T.tobytes() for start in range(0, len(values), block)]


def rival(chunk: KVChunk) -> dict[str, float]:
    """Blocks of 64 tokens of one layer's K or V, byte planes, zlib-6."""
    block = 64 * chunk.layout.kv_heads * chunk.layout.head_dim
    raw, megabytes = token_major(chunk), chunk.raw_bytes / 1e6

    def pack() -> list[bytes]:
        return [zlib.compress(plane, 6) for plane in byte_planes(raw, block)]

    def unpack(packed: list[bytes]) -> bytes:
        blocks = (np.frombuffer(zlib.decompress(block), np.uint8).reshape(2, -1) for block in packed)
        return b"".join(planes[::-1].T.tobytes() for planes in blocks)

    packed = pack()
    assert unpack(packed) == raw
    return {
        "saved": 1 - sum(map(len, packed)) / len(raw),
        "encode_mb_s": megabytes / cpu_seconds(pack, 1),
        "decode_mb_s": megabytes / cpu_seconds(lambda: unpack(packed), 3),
    }


def token_major(chunk: KVChunk) -> bytes:
    """The chunk as an engine holds it: `[layers, 2, tokens, kv_heads, head_dim]`."""
    return chunk.data.transpose(0, 1, 3, 2, 4).tobytes()


def others(chunk: KVChunk) -> dict[str, dict[str, float]]:
    """The codecs that ours is measured against; packages that are not installed are named as such."""
    deflate = zstandard.ZstdCompressor(1).compress, zstandard.ZstdDecompressor().decompress
    table = {
        "raw zlib-1": of_plain(chunk, lambda raw: zlib.compress(raw, 1), zlib.decompress),
        "raw igzip-1": of_plain(chunk, lambda raw: igzip_lib.compress(raw, 1), igzip_lib.decompress),
        "raw zstd-1": of_plain(chunk, *deflate),
        "rival: planes + zlib-6": rival(chunk),
    }
    for name, plain in {"blosc2 shuffle+zstd-1": blosc2_coder, "zipnn": zipnn_coder}.items():
        try:
            table[name] = of_plain(chunk, *plain())
        except ImportError as error:
            print(f"{name}: not measured, {error}")
    return table


def blosc2_coder() -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    import blosc2

    blosc2.set_nthreads(1)
    options = {"typesize": 2, "clevel": 1, "filter": blosc2.Filter.SHUFFLE, "codec": blosc2.Codec.ZSTD}
    return lambda raw: blosc2.compress(raw, **options), blosc2.decompress


def zipnn_coder() -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    from zipnn import ZipNN

    coder = ZipNN(bytearray_dtype="bfloat16", input_format="byte", threads=1)
    return lambda raw: bytes(coder.compress(bytearray(raw))), lambda packed: bytes(coder.decompress(bytearray(packed)))


def wide(tokens: int = 512) -> KVChunk:
    """A synthetic chunk with heads of 128 channels, whose scales differ by channel."""
    layout = KVLayout(layers=8, kv_heads=8, head_dim=128, dtype=KVDType.BF16)
    return KVChunk(chunk_key(FINGERPRINT, "", [0]), FINGERPRINT, layout, 0, strided(gaussian(layout, tokens)))


def strided(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values, token-major in memory, as they come out of a paged cache."""
    return np.ascontiguousarray(data.transpose(0, 1, 3, 2, 4)).transpose(0, 1, 3, 2, 4)


def result(tables: dict[str, dict[str, dict[str, float]]]) -> BenchResult:
    """The tables in the benchmarks' one form; every chain of ours and, as baselines, everybody else's."""
    units = {"saved": "%", "encode_mb_s": "MB/s", "decode_mb_s": "MB/s"}
    rows = []
    for title, table in tables.items():
        for name, row in table.items():
            scaled = row | {"saved": 100 * row["saved"]}
            figures = {figure: Figure.of([scaled[figure]], unit) for figure, unit in units.items()}
            rows.append(Row(f"{name}, {title}", figures, baseline=name not in chain_names()))
    ours = tables[REAL]["a4-deflate"]
    bars = (
        Bar("a4-deflate saves, everything counted, %", 100 * ours["saved"], 33.5, at_least=True),
        Bar("a4-deflate encodes, MB/s", ours["encode_mb_s"], 500, at_least=True),
        Bar("a4-deflate decodes, MB/s", ours["decode_mb_s"], 500, at_least=True),
    )
    note = (
        "One thread, CPU time, MB of K and V; ours end to end with headers and checksums, the others the bytes alone."
    )
    return BenchResult("codec", "Compression of K and V without loss", tuple(rows), bars, {}, (note,))


@pytest.mark.bench
def test_codec(real_kv: np.ndarray[Any, Any]) -> None:
    warm_up()
    chunks = {REAL: chunk_of(strided(real_kv[:, :, :, 300:]), 0, 512), "synthetic, head_dim 128": wide()}
    tables = {
        title: {chain: of_chain(chunk, chain) for chain in chain_names()} | others(chunk)
        for title, chunk in chunks.items()
    }
    measured = result(tables)
    print(f"\n{measured.table()}\nwritten to {measured.save()}")
    assert tables[REAL]["a4-deflate"]["saved"] >= 0.335
