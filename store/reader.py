"""Reading a chunk file layer by layer, straight into a caller's buffers."""

import time
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, ChunkInfo
from store.codec import Codec, Codecs, K, V
from store.errors import CorruptBlob, CorruptChunk
from store.format import Header, checksum, parse_header
from store.tally import Tally
from store.writer import head_groups


class ChunkReader:
    """One chunk file; its methods may be called from several threads at once, and release the GIL while decoding.

    Built from the file's bytes (a read-only map as a rule), which stay readable until the last call has returned, also
    when the file is replaced or removed meanwhile. Raises what `parse_header` raises, and UnknownCodec.
    """

    def __init__(self, data: memoryview, codecs: Codecs, tally: Tally | None = None) -> None:
        self._header = parse_header(data)
        self._codec: Codec = codecs.get(self._header.info.codec, self._header.info.layout.dtype)
        if self._header.bases.shape[3] != self._codec.base_bytes * self.info.layout.head_dim:
            raise CorruptChunk(f"chunk {self.info.key}: {self._header.bases.shape[3]} bases per head")
        self._source: NDArray[np.uint8] | None = np.frombuffer(data, np.uint8)
        self._tally = tally or Tally()

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
        Raises CorruptChunk when any byte is not what was written; the buffers then hold a part of the layer.
        Raises ValueError on a wrong shape, layer or head range, or after `close`.
        """
        source = self._open_source()
        heads = range(self.info.layout.kv_heads) if heads is None else heads
        self._check_request(layer, heads, k_out, v_out)
        started = time.perf_counter()
        try:
            for block in range(self._header.blocks):
                first, end = self._header.block_range(block)
                self._read_block(source, (layer, block, K), heads, k_out[:, first:end])
                self._read_block(source, (layer, block, V), heads, v_out[:, first:end])
        except CorruptBlob as error:
            raise CorruptChunk(f"chunk {self.info.key}, layer {layer}: {error}") from error
        self._tally.add("decode_seconds", time.perf_counter() - started)
        self._tally.add("decoded_bytes", k_out.nbytes + v_out.nbytes)

    def scores(self) -> NDArray[np.float16] | None:
        """The per-token scores, `[tokens]`, or None when the chunk has none. Raises CorruptChunk when damaged."""
        if not self.info.has_scores:
            return None
        scores = np.frombuffer(self._open_source(), "<f2", self.info.tokens, self._header.scores_offset)
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

    def _open_source(self) -> NDArray[np.uint8]:
        if self._source is None:
            raise ValueError(f"chunk {self.info.key}: the reader is closed")
        return self._source

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

    def _read_block(self, source: NDArray[np.uint8], at: tuple[int, int, int], heads: range, out: Bits) -> None:
        layout = self.info.layout
        tokens = out.shape[1]
        for group in head_groups(heads, tokens * layout.head_dim * layout.dtype.bits.itemsize):
            values = np.empty((len(group), tokens, layout.head_dim), layout.dtype.bits)
            self._decode(source, at, group, values)
            expected = self._header.checksums[at][group.start : group.stop].tolist()
            if [checksum(head) for head in values] != expected:
                raise CorruptChunk(f"chunk {self.info.key}, layer, block, K|V {at}: wrong checksum in heads {group}")
            out[group.start - heads.start : group.stop - heads.start] = values

    def _decode(self, source: NDArray[np.uint8], at: tuple[int, int, int], group: range, values: Bits) -> None:
        bases = self._header.bases[at[0], at[2], group.start : group.stop]
        spans = _spans(self._header, at, group)
        coded = spans[:, 1] - spans[:, 0] < values[0].nbytes
        if coded.all():
            self._codec.decode(source, spans, bases, at[2], values)
            return
        for index, (start, end) in enumerate(spans.tolist()):
            if coded[index]:
                self._codec.decode(
                    source, spans[index : index + 1], bases[index : index + 1], at[2], values[index : index + 1]
                )
            else:
                values[index] = source[start:end].view(values.dtype).reshape(values.shape[1:])


def _spans(header: Header, at: tuple[int, int, int], group: range) -> NDArray[np.int64]:
    """Start and end in the file of the payloads of some heads."""
    layer, block, which = at
    first = ((layer * header.blocks + block) * 2 + which) * header.info.layout.kv_heads
    edges = header.offsets[first + group.start : first + group.stop + 1]
    return np.stack((edges[:-1], edges[1:]), axis=1)
