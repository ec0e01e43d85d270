"""The payload that the A4 and A5 chains share: A streams, raw planes, escapes.

u32 escape count, u32 length per A stream, the A streams, the raw planes, u32 escape positions, u8 escape exponents.
"""

import struct
from collections.abc import Sequence

import numpy as np

from store.chunk import Bits
from store.codecs.streams import StreamCoder, pack_plane, stream_count, unpack_plane
from store.errors import CorruptChunk

ESCAPE_BYTES = 5


def pack_payload(coder: StreamCoder, a: Bits, raw: Sequence[Bits], positions: Bits, exponents: Bits) -> bytes:
    """One head's payload."""
    lengths, streams = pack_plane(coder, a.data)
    table = struct.pack(f"<{1 + len(lengths)}I", len(positions), *lengths)
    return b"".join((table, *streams, *(plane.data for plane in raw), positions.data, exponents.data))


def unpack_payload(coder: StreamCoder, payload: memoryview, a: memoryview, raw_bytes: int) -> tuple[int, int]:
    """Fill `a`; returns the raw planes' offset in the payload and the number of escapes. Raises CorruptChunk."""
    table = struct.Struct(f"<{1 + stream_count(len(a))}I")
    if len(payload) < table.size:
        raise CorruptChunk(f"payload: {len(payload)} bytes, expected at least {table.size}")
    escapes, *lengths = table.unpack_from(payload)
    offset = unpack_plane(coder, lengths, payload, table.size, a)
    expected = offset + raw_bytes + escapes * ESCAPE_BYTES
    if len(payload) != expected:
        raise CorruptChunk(f"payload: {len(payload)} bytes, expected {expected}")
    return offset, escapes


def half(values: int) -> int:
    """Bytes of the nibble plane of `values` values."""
    return (values + 1) // 2


def transposed(planes: Bits, rows: int, columns: int) -> Bits:
    """Every plane of `[rows, columns]` bytes in column order; numpy's copy beats a plain kernel four times."""
    tiles = planes.reshape(-1, rows, columns).transpose(0, 2, 1)
    return np.ascontiguousarray(tiles).reshape(planes.shape)
