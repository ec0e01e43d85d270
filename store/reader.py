"""Reading a chunk file layer by layer, straight into a caller's buffers."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, ChunkInfo, K, V
from store.codec import Codec, Codecs
from store.errors import ChunkUnavailable, CorruptBlob, CorruptChunk
from store.format import checksum, read_header
from store.source import Source
from store.writer import head_groups

Observer = Callable[["ChunkReader", int, float], None]
"""Told after each layer: the reader, the decoded bytes, and the seconds it took one thread, reading included."""


class ChunkReader:
    """One chunk file; its methods may be called from several threads at once, and release the GIL while decoding.

    Reads the header now and one range of `source` per layer; a local file stays readable until the last call has
    returned, also when it is replaced or removed meanwhile. `observe` is told every decoded layer's tokens, bytes and
    seconds. Raises what `read_header` raises, and UnknownCodec.
    """

    def __init__(self, source: Source, codecs: Codecs, observe: Observer | None = None) -> None:
        self._header = read_header(source)
        self._codec: Codec = codecs.get(self._header.info.codec, self._header.info.layout.dtype)
        if self._header.bases.shape[3] != self._codec.base_bytes * self.info.layout.head_dim:
            raise CorruptChunk(f"chunk {self.info.key}: {self._header.bases.shape[3]} bases per head")
        self._source: Source | None = source
        self._observe = observe

    @property
    def info(self) -> ChunkInfo:
        """What the file says about itself."""
        return self._header.info

    @property
    def stored_bytes(self) -> int:
        """Size of the file."""
        return int(self._header.offsets[-1])

    def read_layer(self, layer: int, k_out: Bits, v_out: Bits, *, heads: range | None = None) -> None:
        """Decode one layer's K and V, of all heads or of a run of them, as one tensor-parallel rank needs.

        `k_out` and `v_out` are `[heads, tokens, head_dim]` of the layout's bits with any strides.
        Raises CorruptChunk when any byte is not what was written, ChunkUnavailable when the medium fails; the buffers
        then hold a part of the layer. Raises ValueError on a wrong shape, layer or head range, or after `close`.
        """
        source = self._open_source()
        heads = range(self.info.layout.kv_heads) if heads is None else heads
        self._check_request(layer, heads, k_out, v_out)
        started = time.perf_counter()
        payloads = self._fetch(source, *self._header.layer_range(layer))
        try:
            for block in range(self._header.blocks):
                first, end = self._header.block_range(block)
                self._read_block(payloads, (layer, block), heads, (k_out[:, first:end], v_out[:, first:end]))
        except CorruptBlob as error:
            raise CorruptChunk(f"chunk {self.info.key}, layer {layer}: {error}") from error
        if self._observe is not None:
            self._observe(self, k_out.nbytes + v_out.nbytes, time.perf_counter() - started)

    def read(self) -> Bits:
        """Decode the whole chunk, `[layers, 2, kv_heads, tokens, head_dim]`; raises what `read_layer` raises."""
        layout = self.info.layout
        data = np.empty((layout.layers, 2, layout.kv_heads, self.info.tokens, layout.head_dim), layout.dtype.bits)
        for layer in range(layout.layers):
            self.read_layer(layer, data[layer, 0], data[layer, 1])
        return data

    def scores(self) -> NDArray[np.float16] | None:
        """The per-token scores, `[tokens]`, or None when the chunk has none. Raises as `read_layer` does."""
        source, first = self._open_source(), self._header.scores_offset
        if not self.info.has_scores:
            return None
        scores = self._fetch(source, first, first + 2 * self.info.tokens).view("<f2")
        if checksum(scores) != self._header.scores_checksum:
            raise CorruptChunk(f"chunk {self.info.key}: scores have a wrong checksum")
        return scores.astype(np.float16)

    def close(self) -> None:
        """Let the file's bytes go once no call uses them. May be called twice."""
        self._source = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_source(self) -> Source:
        if self._source is None:
            raise ValueError(f"chunk {self.info.key}: the reader is closed")
        return self._source

    def _fetch(self, source: Source, start: int, end: int) -> NDArray[np.uint8]:
        try:
            return np.frombuffer(source.read(start, end), np.uint8)
        except OSError as error:
            raise ChunkUnavailable(f"chunk {self.info.key}: bytes {start} to {end} cannot be read: {error}") from error

    def _check_request(self, layer: int, heads: range, k_out: Bits, v_out: Bits) -> None:
        layout = self.info.layout
        if not 0 <= layer < layout.layers:
            raise ValueError(f"layer {layer}: the chunk has {layout.layers}")
        if heads.step != 1 or not 0 <= heads.start < heads.stop <= layout.kv_heads:
            raise ValueError(f"heads {heads}: expected a run within {layout.kv_heads}")
        expected = (len(heads), self.info.tokens, layout.head_dim)
        for name, out in (("k_out", k_out), ("v_out", v_out)):
            if out.shape != expected or out.dtype != layout.dtype.bits:
                raise ValueError(f"{name}: {out.dtype}{out.shape}, expected {layout.dtype.bits}{expected}")

    def _read_block(
        self, payloads: NDArray[np.uint8], at: tuple[int, int], heads: range, out: tuple[Bits, Bits]
    ) -> None:
        """Decode a block's K and V, a group of heads at a time, by way of memory that stays in cache."""
        _, tokens, dim = out[0].shape
        for group in head_groups(heads, 2 * out[0][0].nbytes):
            values = np.empty((2 * len(group), tokens, dim), out[0].dtype)
            self._decode(payloads, at, group, values)
            expected = self._header.checksums[at][:, group.start : group.stop].reshape(-1).tolist()
            if [checksum(section) for section in values] != expected:
                raise CorruptChunk(f"chunk {self.info.key}, layer, block {at}: wrong checksum in heads {group}")
            rows = slice(group.start - heads.start, group.stop - heads.start)
            out[K][rows], out[V][rows] = values[: len(group)], values[len(group) :]

    def _decode(self, payloads: NDArray[np.uint8], at: tuple[int, int], group: range, values: Bits) -> None:
        """Fill `values`, K of the group's heads and then their V; a payload as long as its section is the section."""
        heads = slice(group.start, group.stop)
        spans = self._header.spans(*at)[:, heads].reshape(-1, 2)
        bases = self._header.bases[at[0], :, heads].reshape(len(values), -1)
        coded = spans[:, 1] - spans[:, 0] < values[0].nbytes
        if coded.all():
            self._codec.decode(payloads, spans, bases, len(group), values)
            return
        for index, (start, end) in enumerate(spans.tolist()):
            one = slice(index, index + 1)
            if coded[index]:
                self._codec.decode(payloads, spans[one], bases[one], int(index < len(group)), values[one])
            else:
                values[index] = payloads[start:end].view(values.dtype).reshape(values.shape[1:])
