"""The A4 chains for bf16: 4-bit relative exponents beside sign and top mantissa bits, then a stream coder.

Order and sizes are those measured in the design's codec page: 34 % saved, against 20 % by plain deflate.
The raw plane is the nibbles. An A plane is token-major, or channel-major where a channel's codes resemble each other
more (K).
"""

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, Spans
from store.codecs import a4_kernels as kernels
from store.codecs.relative import half, pack_payload, transposed, unpack_payload
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

    def encode(self, block: Bits, bases: NDArray[np.uint8], which: int) -> list[bytes]:
        """See `Codec.encode`."""
        heads, tokens, dim = block.shape
        a = np.empty((heads, tokens * dim), np.uint8)
        nibbles = np.empty((heads, half(tokens * dim)), np.uint8)
        positions = np.empty(a.shape, "<u4")
        exponents = np.empty_like(a)
        counts = np.empty(heads, np.int64)
        kernels.encode(block.reshape(heads, -1), bases, a, nibbles, positions, exponents, counts)
        if self._channel_major[which]:
            a = transposed(a, tokens, dim)
        return [
            pack_payload(self._coder, a[head], [nibbles[head]], positions[head, :count], exponents[head, :count])
            for head, count in enumerate(counts.tolist())
        ]

    def decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], which: int, out: Bits) -> None:
        """See `Codec.decode`."""
        heads, tokens, dim = out.shape
        a = np.empty((heads, tokens * dim), np.uint8)
        nibbles_at = np.empty(heads, np.int64)
        escapes = np.empty(heads, np.int64)
        view = source.data
        for head, (start, end) in enumerate(spans):
            used, escapes[head] = unpack_payload(self._coder, view[start:end], a[head].data, half(tokens * dim))
            nibbles_at[head] = start + used
        if self._channel_major[which]:
            a = transposed(a, dim, tokens)
        bad = kernels.decode(source, nibbles_at, escapes, a, bases, out.reshape(heads, -1))
        if bad != kernels.OK:
            raise CorruptChunk(f"payload of head {bad}: an escape lies outside its section")
