"""The chain `planes-deflate` for fp16 and fp32: byte planes, most significant first, each in deflate streams.

Payload: u32 length per stream of every plane, then the streams. Planes that do not shrink are stored. Nothing here is
compiled, so that a short-lived process may use it: streams are coded one by one.
"""

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, Spans
from store.codecs.streams import (
    OneByOne,
    StreamCoder,
    find_streams,
    pack_planes,
    read_tables,
    stream_count,
    unpack_planes,
)
from store.errors import CorruptChunk


class BytePlanes:
    """Byte j of every value together, in token-major order."""

    base_bytes = 0

    def __init__(self, coder: StreamCoder) -> None:
        self._coder = OneByOne(coder)

    def bases(self, plane: Bits) -> NDArray[np.uint8]:
        """No bases."""
        return np.empty((plane.shape[0], 0), np.uint8)

    def encode(self, sections: Bits, bases: NDArray[np.uint8], keys: int) -> list[bytes]:
        """See `Codec.encode`."""
        count, width = len(sections), sections.itemsize
        values = sections.reshape(count, -1, 1).view(np.uint8)
        planes = np.ascontiguousarray(values.transpose(0, 2, 1)[:, ::-1])
        lengths, streams = pack_planes(self._coder, planes.reshape(count * width, -1))
        payloads = []
        for first in range(0, count * width, width):
            table = np.array(lengths[first : first + width], "<u4")
            payloads.append(b"".join((table.data, *chain.from_iterable(streams[first : first + width]))))
        return payloads

    def decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], keys: int, out: Bits) -> None:
        """See `Codec.decode`."""
        count, width = len(out), out.itemsize
        planes = np.empty((count, width, out[0].size), np.uint8)
        words = width * stream_count(planes.shape[2])
        lengths = read_tables(source, spans, words)
        at = spans[:, 0] + 4 * words
        unpack_planes(self._coder, source, at, lengths, planes.reshape(count * width, -1), find_streams)
        if (at != spans[:, 1]).any():
            raise CorruptChunk("payload: bytes behind its streams")
        out.reshape(count, -1, 1).view(np.uint8)[:] = planes[:, ::-1].transpose(0, 2, 1)
