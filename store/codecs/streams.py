"""A plane of bytes as independent streams of at most 64 KiB, each compressed or stored."""

from collections.abc import Sequence
from typing import Protocol

from store.errors import CorruptChunk
from store.member import STREAM_BYTES

STORED = 1 << 31
"""Bit of a stream's length that says its bytes are the raw ones."""


class StreamCoder(Protocol):
    """Compresses one stream; see `store.deflate.Deflate`."""

    def compress(self, data: memoryview) -> bytes:
        """`data` as one self-contained blob."""

    def decompress_into(self, member: memoryview, out: memoryview) -> None:
        """Fill `out` exactly or raise CorruptBlob."""


def stream_count(plane_bytes: int) -> int:
    """Streams of a plane."""
    return -(-plane_bytes // STREAM_BYTES)


def pack_plane(coder: StreamCoder, plane: memoryview) -> tuple[list[int], list[bytes | memoryview]]:
    """Lengths (with the `STORED` bit) and bytes of the plane's streams; no stream grows beyond its raw size."""
    lengths: list[int] = []
    streams: list[bytes | memoryview] = []
    for start in range(0, len(plane), STREAM_BYTES):
        raw = plane[start : start + STREAM_BYTES]
        packed = coder.compress(raw)
        if len(packed) < len(raw):
            lengths.append(len(packed))
            streams.append(packed)
        else:
            lengths.append(len(raw) | STORED)
            streams.append(raw)
    return lengths, streams


def unpack_plane(coder: StreamCoder, lengths: Sequence[int], source: memoryview, offset: int, out: memoryview) -> int:
    """Fill `out` from the streams that start at `source[offset]`; returns the offset behind them.

    Raises CorruptChunk when the lengths lead out of `source` or a stored stream has another size than its raw bytes.
    """
    for index, length in enumerate(lengths):
        target = out[index * STREAM_BYTES : (index + 1) * STREAM_BYTES]
        end = offset + (length & ~STORED)
        if end > len(source):
            raise CorruptChunk(f"stream {index}: ends at byte {end} of a payload of {len(source)}")
        if not length & STORED:
            coder.decompress_into(source[offset:end], target)
        elif end - offset == len(target):
            target[:] = source[offset:end]
        else:
            raise CorruptChunk(f"stream {index}: {end - offset} stored bytes, expected {len(target)}")
        offset = end
    return offset
