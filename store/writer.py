"""Encoding a chunk into the parts of its file."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, KVChunk
from store.codec import Codec
from store.format import block_count, checksum, pack_header

GROUP_BYTES = 512 * 1024
"""Raw bytes of heads handled together: few calls, and what they work on stays in or near a core's L2 cache."""

TASK_BYTES = 2 * 1024 * 1024
"""Raw bytes of layers that a thread encodes at a time, so that handing them out costs little beside encoding them."""


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk file in parts, in file order."""

    parts: tuple[bytes, ...]
    raw_bytes: int

    @property
    def stored_bytes(self) -> int:
        """Size of the file."""
        return sum(map(len, self.parts))


_Section = tuple[bytes, int]
"""Payload and checksum."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    bases: NDArray[np.uint8]
    payloads: list[bytes]
    checksums: list[int]


def encode_chunk(chunk: KVChunk, name: str, codec: Codec, pool: Executor | None = None) -> EncodedChunk:
    """Encode with `codec`, which is the chain `name`, layer by layer, on `pool` when one is given."""
    blocks = block_count(chunk.tokens)
    run: Callable[..., Iterable[list[_Layer]]] = pool.map if pool else map
    encoded = run(lambda layers: [_encode_layer(layer, blocks, codec) for layer in layers], _tasks(chunk.data))
    layers = list(chain.from_iterable(encoded))
    payloads = [payload for layer in layers for payload in layer.payloads]
    shape = (chunk.layout.layers, blocks, 2, chunk.layout.kv_heads)
    lengths = np.array([len(payload) for payload in payloads], np.uint32).reshape(shape)
    checksums = np.array([digest for layer in layers for digest in layer.checksums], np.uint64).reshape(shape)
    scores = b"" if chunk.scores is None else chunk.scores.astype("<f2").tobytes()
    bases = np.stack([layer.bases for layer in layers])
    header = pack_header(chunk.info(name), lengths, checksums, bases, scores)
    return EncodedChunk((header, scores, *payloads), chunk.raw_bytes)


def _tasks(data: Bits) -> list[Bits]:
    """The layers in runs of about `TASK_BYTES`."""
    step = max(1, TASK_BYTES // data[0].nbytes)
    return [data[first : first + step] for first in range(0, len(data), step)]


def head_groups(heads: range, head_bytes: int) -> Iterator[range]:
    """Split `heads` into runs of about `GROUP_BYTES`; a head has `head_bytes` of K and V in a block."""
    step = max(1, GROUP_BYTES // head_bytes)
    for start in range(heads.start, heads.stop, step):
        yield range(start, min(start + step, heads.stop))


def _encode_layer(layer: Bits, blocks: int, codec: Codec) -> _Layer:
    _, heads, tokens, dim = layer.shape
    planes = np.ascontiguousarray(layer)
    bases = codec.bases(planes.reshape(2 * heads, tokens, dim)).reshape(2, heads, -1)
    encoded = _Layer(bases, [], [])
    for block in range(blocks):
        _encode_block(planes[:, :, block * tokens // blocks : (block + 1) * tokens // blocks], codec, encoded)
    return encoded


def _encode_block(block: Bits, codec: Codec, encoded: _Layer) -> None:
    """Heads in groups, K and V of a group together; in the file all K come first."""
    _, heads, tokens, dim = block.shape
    sections: tuple[list[_Section], list[_Section]] = ([], [])
    for group in head_groups(range(heads), block[:, 0].nbytes):
        values = np.ascontiguousarray(block[:, group.start : group.stop]).reshape(-1, tokens, dim)
        bases = encoded.bases[:, group.start : group.stop].reshape(len(values), -1)
        payloads = codec.encode(values, bases, len(group))
        for index, (payload, section) in enumerate(zip(payloads, values, strict=True)):
            kept = payload if len(payload) < section.nbytes else section.tobytes()
            sections[index >= len(group)].append((kept, checksum(section)))
    for payload, digest in sections[0] + sections[1]:
        encoded.payloads.append(payload)
        encoded.checksums.append(digest)
