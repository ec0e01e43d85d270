"""Savings and speed of every codec chain beside plain coders and the published rival's layout, in one run.

Encoding is from strided token-major bf16 to the parts of a file, decoding from a file to strided token-major bf16;
headers and checksums are included.
"""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from app.config import Settings
from app.eval.bench.chunks import CHUNK_TOKENS, real_chunk, real_kv, token_major, wide_chunk
from app.eval.bench.coders import Coder, coders, raw_bytes, size_of
from app.eval.bench.registry import Size
from app.eval.bench.result import Bar, BenchResult, Figure, Row
from app.eval.bench.timing import SECONDS, in_turns, repeated
from app.eval.errors import EvalError
from app.models import prepare_models
from store.chunk import KVChunk
from store.codec import DEFAULT_CHAIN, Codecs, chain_names
from store.deflate import SoftwareDeflate
from store.reader import ChunkReader
from store.source import BytesSource
from store.warm import warm_up
from store.writer import EncodedChunk, encode_chunk

_CODECS = Codecs(SoftwareDeflate())
_NOTE = (
    "One thread, CPU time, MB of K and V; ours end to end with headers and checksums, the others the bytes alone. "
    "Two threads: elapsed time of one over that of two, which means something only while both cores are free."
)


def run(settings: Settings, size: Size) -> BenchResult:
    """Measure on a real model's chunk and on a made-up one."""
    seconds = SECONDS if size is Size.SHORT else 5 * SECONDS
    chunks = {
        f"SmolLM2, {CHUNK_TOKENS} tokens": real_chunk(real_kv(prepare_models(settings.home).llm)),
        "synthetic, head_dim 128": wide_chunk(),
    }
    return measure_codec(chunks, seconds)


def measure_codec(chunks: Mapping[str, KVChunk], seconds: float) -> BenchResult:
    """Measure every chain and every other coder on each chunk, each way for `seconds`; the bars are of the first one.

    Raises EvalError when a coder is not lossless.
    """
    warm_up()
    rows = [row for name, chunk in chunks.items() for row in _rows(name, chunk, seconds)]
    ours = next(row.figures for row in rows if row.name.startswith(DEFAULT_CHAIN))
    title = "Compression of K and V without loss"
    return BenchResult("codec", title, tuple(rows), _bars(ours), {"chunk_tokens": CHUNK_TOKENS}, (_NOTE,))


def encode(chunk: KVChunk, chain: str = DEFAULT_CHAIN, pool: ThreadPoolExecutor | None = None) -> EncodedChunk:
    """Encode as the store does."""
    return encode_chunk(chunk, chain, _CODECS.get(chain, chunk.layout.dtype), pool)


def opened(encoded: EncodedChunk) -> ChunkReader:
    """Open an encoded chunk that is wholly in memory."""
    return ChunkReader(BytesSource(memoryview(b"".join(encoded.parts))), _CODECS)


class Target:
    """Where a chunk's layers go, one after the other: rows of a token-major buffer, as the connector has it."""

    def __init__(self, chunk: KVChunk) -> None:
        self._layers = range(chunk.layout.layers)
        self._rows = token_major(np.zeros_like(chunk.data[:1]))[0]

    def fill(self, reader: ChunkReader, layers: range | None = None) -> None:
        """Decode layers, all of them if none are named."""
        for layer in self._layers if layers is None else layers:
            reader.read_layer(layer, self._rows[0], self._rows[1])


def _rows(title: str, chunk: KVChunk, seconds: float) -> list[Row]:
    ours = [Row(f"{chain}, {title}", _of_chain(chunk, chain, seconds)) for chain in chain_names()]
    others = [Row(f"{coder.name}, {title}", _of_coder(chunk, coder, seconds), baseline=True) for coder in coders(chunk)]
    return ours + others


def _of_chain(chunk: KVChunk, chain: str, seconds: float) -> dict[str, Figure]:
    encoded = encode(chunk, chain)
    reader, target = opened(encoded), Target(chunk)
    if not np.array_equal(reader.read(), chunk.data):
        raise EvalError(f"{chain} is not lossless")
    return {
        "saved": Figure.of([100 * (1 - encoded.stored_bytes / chunk.raw_bytes)], "%"),
        "encode": _speed(chunk, repeated(lambda: encode(chunk, chain), seconds=seconds)),
        "decode": _speed(chunk, repeated(lambda: target.fill(reader), seconds=seconds)),
    } | (_two_threads(chunk, chain, seconds) if chain == DEFAULT_CHAIN else {})


def _of_coder(chunk: KVChunk, coder: Coder, seconds: float) -> dict[str, Figure]:
    raw = raw_bytes(chunk)
    packed = coder.pack(raw)
    if coder.unpack(packed) != raw:
        raise EvalError(f"{coder.name} is not lossless")
    return {
        "saved": Figure.of([100 * (1 - size_of(packed) / len(raw))], "%"),
        "encode": _speed(chunk, repeated(lambda: coder.pack(raw), seconds=seconds)),
        "decode": _speed(chunk, repeated(lambda: coder.unpack(packed), seconds=seconds)),
    }


def _two_threads(chunk: KVChunk, chain: str, seconds: float) -> dict[str, Figure]:
    """Speed of two threads over that of one, layers dealt out; the least times, as a thread without a core waits."""
    reader = opened(encode(chunk, chain))
    halves = range(0, chunk.layout.layers // 2), range(chunk.layout.layers // 2, chunk.layout.layers)
    targets = Target(chunk), Target(chunk)
    with ThreadPoolExecutor(2) as pool:

        def decode_by_two() -> None:
            list(pool.map(lambda target, half: target.fill(reader, half), targets, halves))

        encoding = in_turns(
            lambda: encode(chunk, chain), lambda: encode(chunk, chain, pool), clock=time.perf_counter, seconds=seconds
        )
        decoding = in_turns(lambda: targets[0].fill(reader), decode_by_two, clock=time.perf_counter, seconds=seconds)
    return {"encode, 2 threads": _ratio(encoding), "decode, 2 threads": _ratio(decoding)}


def _ratio(times: list[list[float]]) -> Figure:
    one, two = times
    return Figure.of([min(one) / min(two)], "x")


def _speed(chunk: KVChunk, times: list[float]) -> Figure:
    return Figure.of([chunk.raw_bytes / 1e6 / taken for taken in times], "MB/s")


def _bars(ours: Mapping[str, Figure]) -> tuple[Bar, ...]:
    goals = (
        ("saves, everything counted, %", "saved", 33.5),
        ("encodes, MB/s", "encode", 500),
        ("decodes, MB/s", "decode", 500),
        ("encodes with two threads, times one", "encode, 2 threads", 1.7),
        ("decodes with two threads, times one", "decode, 2 threads", 1.7),
    )
    return tuple(
        Bar(f"{DEFAULT_CHAIN} {claim}", ours[name].median, limit, at_least=True) for claim, name, limit in goals
    )
