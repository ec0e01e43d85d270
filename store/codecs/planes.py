"""The chain `planes-deflate` for fp16 and fp32: byte planes, most significant first, each in deflate streams.

Payload: u32 length per stream of every plane, then the streams. Planes that do not shrink are stored.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, Spans
from store.codecs.streams import StreamCoder, pack_plane, stream_count, unpack_plane
from store.errors import CorruptChunk


class BytePlanes:
    """Byte j of every value together, in token-major order."""

    base_bytes = 0

    def __init__(self, coder: StreamCoder) -> None:
        self._coder = coder

    def bases(self, plane: Bits) -> NDArray[np.uint8]:
        """No bases."""
        return np.empty((plane.shape[0], 0), np.uint8)

    def encode(self, block: Bits, bases: NDArray[np.uint8], which: int) -> list[bytes]:
        """One payload per head."""
        return [self._encode_head(head) for head in block]

    def decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], which: int, out: Bits) -> None:
        """Inverse of `encode`."""
        view = source.data
        for (start, end), head in zip(spans, out, strict=True):
            self._decode_head(view[start:end], head)

    def _encode_head(self, head: Bits) -> bytes:
        width = head.dtype.itemsize
        planes = np.ascontiguousarray(head.reshape(-1, 1).view(np.uint8).T[::-1])
        packed = [pack_plane(self._coder, planes[plane].data) for plane in range(width)]
        lengths = [length for plane_lengths, _ in packed for length in plane_lengths]
        streams = [stream for _, plane_streams in packed for stream in plane_streams]
        return b"".join((struct.pack(f"<{len(lengths)}I", *lengths), *streams))

    def _decode_head(self, payload: memoryview, head: Bits) -> None:
        width, count = head.dtype.itemsize, stream_count(head.size)
        table = struct.Struct(f"<{count * width}I")
        if len(payload) < table.size:
            raise CorruptChunk(f"payload: {len(payload)} bytes, expected at least {table.size}")
        lengths, offset = table.unpack_from(payload), table.size
        planes = np.empty((width, head.size), np.uint8)
        for plane in range(width):
            mine = lengths[plane * count : (plane + 1) * count]
            offset = unpack_plane(self._coder, mine, payload, offset, planes[plane].data)
        if offset != len(payload):
            raise CorruptChunk(f"payload: {len(payload)} bytes, {offset} used")
        head.reshape(-1, 1).view(np.uint8)[:] = planes[::-1].T
