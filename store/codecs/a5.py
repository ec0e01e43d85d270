"""The chain `a5-zstd` for bf16: 5-bit relative exponents, and as many mantissa bits as are worth coding.

Half a point smaller than A4 and as fast; zstd only, as it does not suit deflate (measured in the design's codec page).
"""

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, Spans
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

    def encode(self, block: Bits, bases: NDArray[np.uint8], which: int) -> list[bytes]:
        """See `Codec.encode`."""
        heads, tokens, dim = block.shape
        size = tokens * dim
        a = np.empty((heads, size), np.uint8)
        nibbles = np.empty((heads, relative.half(size)), np.uint8)
        crumbs = np.empty((heads, _crumb_bytes(size, which)), np.uint8)
        positions = np.empty(a.shape, "<u4")
        exponents = np.empty_like(a)
        counts = np.empty(heads, np.int64)
        values = block.reshape(heads, -1)
        kernels.encode(values, bases, _MANTISSA[which], a, nibbles, crumbs, positions, exponents, counts)
        if _CHANNEL_MAJOR[which]:
            a = relative.transposed(a, tokens, dim)
        return [
            relative.pack_payload(
                self._coder, a[head], (nibbles[head], crumbs[head]), positions[head, :count], exponents[head, :count]
            )
            for head, count in enumerate(counts.tolist())
        ]

    def decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], which: int, out: Bits) -> None:
        """See `Codec.decode`."""
        heads, tokens, dim = out.shape
        size = tokens * dim
        raw_bytes = relative.half(size) + _crumb_bytes(size, which)
        a = np.empty((heads, size), np.uint8)
        raw_at = np.empty(heads, np.int64)
        escapes = np.empty(heads, np.int64)
        view = source.data
        for head, (start, end) in enumerate(spans):
            used, escapes[head] = relative.unpack_payload(self._coder, view[start:end], a[head].data, raw_bytes)
            raw_at[head] = start + used
        if _CHANNEL_MAJOR[which]:
            a = relative.transposed(a, dim, tokens)
        bad = kernels.decode(source, raw_at, escapes, a, bases, _MANTISSA[which], out.reshape(heads, -1))
        if bad != kernels.OK:
            raise CorruptChunk(f"payload of head {bad}: an escape lies outside its section")


def _crumb_bytes(values: int, which: int) -> int:
    return (values * (3 - _MANTISSA[which]) + 7) // 8
