"""Encoding a chunk into the parts of its file."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, KVChunk
from store.codec import Codec
from store.format import block_count, checksum, pack_header

GROUP_BYTES = 256 * 1024
"""Raw bytes of heads handled together, so that they and their planes stay in a core's L2 cache."""


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk file in parts, in file order."""

    parts: tuple[bytes, ...]
    raw_bytes: int

    @property
    def stored_bytes(self) -> int:
        """Size of the file."""
        return sum(map(len, self.parts))


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    bases: NDArray[np.uint8]
    payloads: list[bytes]
    checksums: list[int]


def encode_chunk(chunk: KVChunk, chain: str, codec: Codec, pool: Executor | None = None) -> EncodedChunk:
    """Encode with `codec`, which is the chain `chain`, layer by layer, on `pool` when one is given."""
    blocks = block_count(chunk.tokens)
    run: Callable[..., Iterable[_Layer]] = pool.map if pool else map
    layers = list(run(lambda layer: _encode_layer(layer, blocks, codec), chunk.data))
    payloads = [payload for layer in layers for payload in layer.payloads]
    shape = (chunk.layout.layers, blocks, 2, chunk.layout.kv_heads)
    lengths = np.array([len(payload) for payload in payloads], np.uint32).reshape(shape)
    checksums = np.array([digest for layer in layers for digest in layer.checksums], np.uint64).reshape(shape)
    scores = b"" if chunk.scores is None else chunk.scores.astype("<f2").tobytes()
    bases = np.stack([layer.bases for layer in layers])
    header = pack_header(chunk.info(chain), lengths, checksums, bases, scores)
    return EncodedChunk((header, scores, *payloads), chunk.raw_bytes)


def head_groups(heads: range, section_bytes: int) -> Iterator[range]:
    """Split `heads` into runs of about `GROUP_BYTES`."""
    step = max(1, GROUP_BYTES // section_bytes)
    for start in range(heads.start, heads.stop, step):
        yield range(start, min(start + step, heads.stop))


def _encode_layer(layer: Bits, blocks: int, codec: Codec) -> _Layer:
    tokens = layer.shape[2]
    planes = [np.ascontiguousarray(plane) for plane in layer]
    encoded = _Layer(np.stack([codec.bases(plane) for plane in planes]), [], [])
    for block in range(blocks):
        first, end = block * tokens // blocks, (block + 1) * tokens // blocks
        for which, plane in enumerate(planes):
            _encode_block(plane[:, first:end], codec, which, encoded)
    return encoded


def _encode_block(block: Bits, codec: Codec, which: int, encoded: _Layer) -> None:
    for heads in head_groups(range(block.shape[0]), block[0].nbytes):
        values = np.ascontiguousarray(block[heads.start : heads.stop])
        payloads = codec.encode(values, encoded.bases[which, heads.start : heads.stop], which)
        encoded.checksums.extend(checksum(head) for head in values)
        encoded.payloads.extend(
            payload if len(payload) < head.nbytes else head.tobytes()
            for payload, head in zip(payloads, values, strict=True)
        )
