"""The chain `a5-zstd` for bf16: 5-bit relative exponents, and as many mantissa bits as are worth coding.

Half a point smaller than A4 and as fast; zstd only, as it does not suit deflate (measured in the design's codec page).
"""

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, K, Spans, V
from store.codecs import a4_kernels, relative
from store.codecs import a5_kernels as kernels
from store.codecs.streams import StreamCoder
from store.errors import CorruptChunk

_MANTISSA = (1, 2)
"""Mantissa bits in the A byte of K and of V."""

_CHANNEL_MAJOR = (True, False)


class A5:
    """A5 over `coder`."""

    base_bytes = 1

    def __init__(self, coder: StreamCoder) -> None:
        self._coder = coder

    def bases(self, plane: Bits) -> NDArray[np.uint8]:
        """See `Codec.bases`."""
        bases = np.empty((plane.shape[0], plane.shape[2]), np.uint8)
        a4_kernels.channel_bases(plane, bases, kernels.ESCAPE)
        return bases

    def encode(self, sections: Bits, bases: NDArray[np.uint8], keys: int) -> list[bytes]:
        """See `Codec.encode`."""
        return self._encode(sections[:keys], bases[:keys], K) + self._encode(sections[keys:], bases[keys:], V)

    def decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], keys: int, out: Bits) -> None:
        """See `Codec.decode`."""
        self._decode(source, spans[:keys], bases[:keys], K, out[:keys])
        self._decode(source, spans[keys:], bases[keys:], V, out[keys:])

    def _encode(self, sections: Bits, bases: NDArray[np.uint8], which: int) -> list[bytes]:
        count, tokens, dim = sections.shape
        if not count:
            return []
        size = tokens * dim
        a = np.empty((count, size), np.uint8)
        nibbles = np.empty((count, relative.half(size)), np.uint8)
        crumbs = np.empty((count, _crumb_bytes(size, which)), np.uint8)
        positions = np.empty(a.shape, "<u4")
        exponents = np.empty_like(a)
        counts = np.empty(count, np.int64)
        values = sections.reshape(count, -1)
        kernels.encode(values, bases, _MANTISSA[which], a, nibbles, crumbs, positions, exponents, counts)
        if _CHANNEL_MAJOR[which]:
            a = relative.transposed(a, tokens, dim)
        return relative.pack_payloads(self._coder, a, (nibbles, crumbs), positions, exponents, counts)

    def _decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], which: int, out: Bits) -> None:
        count, tokens, dim = out.shape
        if not count:
            return
        size = tokens * dim
        a = np.empty((count, size), np.uint8)
        raw_bytes = relative.half(size) + _crumb_bytes(size, which)
        raw_at, escapes = relative.unpack_payloads(self._coder, source, spans, a, raw_bytes)
        if _CHANNEL_MAJOR[which]:
            a = relative.transposed(a, dim, tokens)
        bad = kernels.decode(source, raw_at, escapes, a, bases, _MANTISSA[which], out.reshape(count, -1))
        if bad != kernels.OK:
            raise CorruptChunk(f"payload of section {bad}: an escape lies outside its section")


def _crumb_bytes(values: int, which: int) -> int:
    return (values * (3 - _MANTISSA[which]) + 7) // 8
