"""Planes of bytes as independent streams of at most 64 KiB, each compressed or stored; many planes make one batch."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, Spans
from store.errors import CorruptChunk
from store.member import STREAM_BYTES

STORED = 1 << 31
"""Bit of a stream's length that says its bytes are the raw ones."""

Piece = bytes | memoryview


class StreamCoder(Protocol):
    """Compresses streams; see `store.deflate.Deflate`. A coder that gains by it overrides the verbs for many."""

    def compress(self, data: memoryview) -> bytes:
        """`data` as one self-contained blob."""

    def decompress_into(self, member: memoryview, out: memoryview) -> None:
        """Fill `out` exactly or raise CorruptBlob."""

    def compress_many(self, source: NDArray[np.uint8], spans: Spans) -> list[Piece]:
        """A blob per span of the contiguous `source`, each what `compress` makes."""
        return [self.compress(source.data[start:end]) for start, end in spans.tolist()]

    def decompress_many(self, source: NDArray[np.uint8], spans: Spans, out: NDArray[np.uint8], targets: Spans) -> None:
        """Fill every one of `targets` in `out` from its blob in `source`; raises what `decompress_into` raises."""
        for (start, end), (first, last) in zip(spans.tolist(), targets.tolist(), strict=True):
            self.decompress_into(source.data[start:end], out.data[first:last])


class OneByOne(StreamCoder):
    """Another coder's single verbs only, for chains that must not load compiled code."""

    def __init__(self, coder: StreamCoder) -> None:
        self._coder = coder

    def compress(self, data: memoryview) -> bytes:
        """See `StreamCoder.compress`."""
        return self._coder.compress(data)

    def decompress_into(self, member: memoryview, out: memoryview) -> None:
        """See `StreamCoder.decompress_into`."""
        self._coder.decompress_into(member, out)


def stream_count(plane_bytes: int) -> int:
    """Streams of a plane."""
    return -(-plane_bytes // STREAM_BYTES)


@lru_cache(maxsize=64)
def stream_spans(planes: int, plane_bytes: int) -> Spans:
    """Where the streams of planes that lie one behind the other are; the same for block after block, so remembered."""
    first = np.arange(0, plane_bytes, STREAM_BYTES)
    edges = np.stack((first, np.minimum(first + STREAM_BYTES, plane_bytes)), axis=1)
    spans: Spans = (np.arange(planes)[:, None, None] * plane_bytes + edges).reshape(-1, 2)
    spans.flags.writeable = False
    return spans


def pack_planes(coder: StreamCoder, planes: Bits) -> tuple[list[list[int]], list[list[Piece]]]:
    """Lengths (with the `STORED` bit) and bytes of each plane's streams, from contiguous `planes[plane, byte]`.

    No stream grows beyond its raw size.
    """
    count, source = stream_count(planes.shape[1]), planes.reshape(-1)
    spans = stream_spans(*planes.shape)
    streams = coder.compress_many(source, spans)
    lengths = [len(stream) for stream in streams]
    for index, (start, end) in enumerate(spans.tolist()):
        if lengths[index] >= end - start:
            lengths[index] = (end - start) | STORED
            streams[index] = source.data[start:end]
    rows = range(0, len(streams), count)
    return [lengths[row : row + count] for row in rows], [streams[row : row + count] for row in rows]


def read_tables(source: NDArray[np.uint8], spans: Spans, words: int) -> NDArray[np.uint32]:
    """The u32 `words` every payload begins with, `[payloads, words]`. Raises CorruptChunk when one is shorter."""
    shortest = int((spans[:, 1] - spans[:, 0]).min())
    if shortest < 4 * words:
        raise CorruptChunk(f"payload: {shortest} bytes, expected at least {4 * words}")
    tables: NDArray[np.uint32] = source[spans[:, :1] + np.arange(4 * words)].view("<u4")
    return tables


def unpack_planes(
    coder: StreamCoder,
    source: NDArray[np.uint8],
    at: NDArray[np.int64],
    lengths: NDArray[np.uint32],
    out: Bits,
    find: Callable[..., int],
) -> None:
    """Fill the contiguous `out[plane, byte]` from streams of `lengths[payload, stream]`, as many planes per payload.

    `at` has where in `source` each payload's first stream is, and then where its last one ends, for the caller to
    compare. `find` is `find_streams` or its compiled form. Raises CorruptChunk when a stream ends behind `source` or a
    stored one is not of its raw size.
    """
    streams = np.empty((lengths.size, 2), np.int64)
    targets = np.empty_like(streams)
    coded = find(source, at, lengths, out.reshape(-1), out.shape[1], streams, targets)
    if coded < 0:
        raise CorruptChunk("payload: a stream ends behind it, or a stored one is not of its raw size")
    coder.decompress_many(source, streams[:coded], out.reshape(-1), targets[:coded])


def find_streams(source: Any, at: Any, lengths: Any, out: Any, plane_bytes: int, streams: Any, targets: Any) -> int:
    """List what is to be decompressed, move `at` behind it, and copy stored streams; see `unpack_planes`.

    `out` is all planes, flat. Returns how many are listed, or -1 where lengths cannot be right. Plain loops over
    numbers: the compiled chains compile them, the others run them as they are.
    """
    coded, first = 0, 0
    for payload in range(lengths.shape[0]):
        for index in range(lengths.shape[1]):
            length, start = int(lengths[payload, index]), at[payload]
            end = start + (length & (STORED - 1))
            last = first + min(STREAM_BYTES, plane_bytes - first % plane_bytes)
            if end > source.size or (length >= STORED and end - start != last - first):
                return -1
            if length >= STORED:
                out[first:last] = source[start:end]
            else:
                streams[coded, 0], streams[coded, 1] = start, end
                targets[coded, 0], targets[coded, 1] = first, last
                coded += 1
            at[payload], first = end, last
    return coded
