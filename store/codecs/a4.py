"""The A4 chains for bf16: 4-bit relative exponents beside sign and top mantissa bits, then a stream coder.

Order and sizes are those measured in the design's codec page: 34 % saved, against 20 % by plain deflate.
The raw plane is the nibbles. An A plane is token-major, or channel-major where a channel's codes resemble each other
more (K).
"""

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, Spans
from store.codecs import a4_kernels as kernels
from store.codecs.relative import half, pack_payloads, transposed, unpack_payloads
from store.codecs.streams import StreamCoder
from store.errors import CorruptChunk


class A4:
    """A4 over `coder`; `channel_major` says for K and for V whether the A plane is transposed."""

    base_bytes = 1

    def __init__(self, coder: StreamCoder, channel_major: tuple[bool, bool]) -> None:
        self._coder = coder
        self._channel_major = channel_major

    def bases(self, plane: Bits) -> NDArray[np.uint8]:
        """See `Codec.bases`."""
        bases = np.empty((plane.shape[0], plane.shape[2]), np.uint8)
        kernels.channel_bases(plane, bases, kernels.ESCAPE)
        return bases

    def encode(self, sections: Bits, bases: NDArray[np.uint8], keys: int) -> list[bytes]:
        """See `Codec.encode`."""
        count, tokens, dim = sections.shape
        a = np.empty((count, tokens * dim), np.uint8)
        nibbles = np.empty((count, half(tokens * dim)), np.uint8)
        positions = np.empty(a.shape, "<u4")
        exponents = np.empty_like(a)
        counts = np.empty(count, np.int64)
        kernels.encode(sections.reshape(count, -1), bases, a, nibbles, positions, exponents, counts)
        self._transpose(a, keys, tokens, dim)
        return pack_payloads(self._coder, a, [nibbles], positions, exponents, counts)

    def decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], keys: int, out: Bits) -> None:
        """See `Codec.decode`."""
        count, tokens, dim = out.shape
        a = np.empty((count, tokens * dim), np.uint8)
        nibbles_at, escapes = unpack_payloads(self._coder, source, spans, a, half(tokens * dim))
        self._transpose(a, keys, dim, tokens)
        bad = kernels.decode(source, nibbles_at, escapes, a, bases, out.reshape(count, -1))
        if bad != kernels.OK:
            raise CorruptChunk(f"payload of section {bad}: an escape lies outside its section")

    def _transpose(self, a: Bits, keys: int, rows: int, columns: int) -> None:
        for channel_major, planes in zip(self._channel_major, (a[:keys], a[keys:]), strict=True):
            if channel_major and planes.size:
                planes[:] = transposed(planes, rows, columns)
