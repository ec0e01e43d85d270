"""The payload that the A4 and A5 chains share: A streams, raw planes, escapes.

u32 escape count, u32 length per A stream, the A streams, the raw planes, u32 escape positions, u8 escape exponents.
"""

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, Spans
from store.codecs.streams import StreamCoder, find_streams, pack_planes, read_tables, stream_count, unpack_planes
from store.errors import CorruptChunk

ESCAPE_BYTES = 5

_find_streams = numba.njit(nogil=True, cache=True, error_model="numpy")(find_streams)


def pack_payloads(
    coder: StreamCoder, a: Bits, raw: Sequence[Bits], positions: Bits, exponents: Bits, counts: NDArray[np.int64]
) -> list[bytes]:
    """One payload per section; every array is `[section, ...]`, and `counts` says how many escapes are valid."""
    lengths, streams = pack_planes(coder, a)
    payloads = []
    for section, count in enumerate(counts.tolist()):
        table = np.array([count, *lengths[section]], "<u4")
        planes = (plane[section].data for plane in raw)
        escapes = (positions[section, :count].data, exponents[section, :count].data)
        payloads.append(b"".join((table.data, *streams[section], *planes, *escapes)))
    return payloads


def unpack_payloads(
    coder: StreamCoder, source: NDArray[np.uint8], spans: Spans, a: Bits, raw_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Fill `a[section, byte]`; returns where each section's raw planes are in `source`, and its number of escapes.

    Raises CorruptChunk when a payload is not as long as its parts, and what `StreamCoder.decompress_into` raises.
    """
    words = 1 + stream_count(a.shape[1])
    tables = read_tables(source, spans, words)
    at, escapes = spans[:, 0] + 4 * words, tables[:, 0].astype(np.int64)
    unpack_planes(coder, source, at, tables[:, 1:], a, _find_streams)
    if (at + raw_bytes + escapes * ESCAPE_BYTES != spans[:, 1]).any():
        raise CorruptChunk("payload: not as long as its parts")
    return at, escapes


def half(values: int) -> int:
    """Bytes of the nibble plane of `values` values."""
    return (values + 1) // 2


def transposed(planes: Bits, rows: int, columns: int) -> Bits:
    """Every plane of `[rows, columns]` bytes in column order; numpy's copy beats a plain kernel four times."""
    tiles = planes.reshape(-1, rows, columns).transpose(0, 2, 1)
    return np.ascontiguousarray(tiles).reshape(planes.shape)
