"""The chunk file's header, version 1; FORMAT.md is the specification.

A file is: header, scores (optional), payloads in load order (layer, token block, K then V, head), without gaps. The
header holds every payload's length, so no two can overlap and the whole file is checked by its size before any decode.
"""

import struct
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from store.chunk import ChunkInfo, KVDType, KVLayout, Spans
from store.errors import CorruptChunk, TruncatedChunk, UnsupportedVersion
from store.keys import ChunkKey
from store.source import Source

MAGIC = b"\x89KVF\r\n\x1a\n"
VERSION = 1
BLOCK_TOKENS = 256
"""Tokens a block aims at: fewer cost savings (16 tokens 3.5 points), more make the unit of decoding larger."""

HEADER_GUESS = 1 << 16
"""Bytes asked for first, which hold most headers whole: one request to a remote store, and not a large one."""

MAX_SECTION_BYTES = 1 << 26
MAX_SECTIONS = 1 << 24

_FIXED = struct.Struct("<8sHHIQ32s32s32s24sB3xIIIIIqIIQ")
_CHECKSUM = struct.Struct("<Q")
_HAS_SCORES = 1
_DTYPES = (KVDType.BF16, KVDType.FP16, KVDType.FP32)


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """A parsed header. Arrays are indexed `[layer, block, K|V, head]`, `bases` `[layer, K|V, head, channel]`.

    `offsets` are from the start of the file and have one entry more than there are payloads.
    """

    info: ChunkInfo
    blocks: int
    offsets: NDArray[np.int64]
    checksums: NDArray[np.uint64]
    bases: NDArray[np.uint8]
    scores_offset: int
    scores_checksum: int

    def block_range(self, block: int) -> tuple[int, int]:
        """First token and end of a block."""
        return block * self.info.tokens // self.blocks, (block + 1) * self.info.tokens // self.blocks

    def layer_range(self, layer: int) -> tuple[int, int]:
        """First byte and end of a layer's payloads in the file."""
        sections = self.blocks * 2 * self.info.layout.kv_heads
        return int(self.offsets[layer * sections]), int(self.offsets[(layer + 1) * sections])

    def spans(self, layer: int, block: int) -> Spans:
        """Where in the layer's payloads those of a block are, `[K|V, head, 2]`."""
        heads = self.info.layout.kv_heads
        first = (layer * self.blocks + block) * 2 * heads
        edges = self.offsets[first : first + 2 * heads + 1] - self.layer_range(layer)[0]
        return np.stack((edges[:-1], edges[1:]), axis=1).reshape(2, heads, 2)


def block_count(tokens: int) -> int:
    """Blocks of equal size (give or take a token) nearest to `BLOCK_TOKENS`, so that no small tail arises."""
    return max(1, round(tokens / BLOCK_TOKENS))


def checksum(data: object) -> int:
    """xxh3-64 of a contiguous buffer."""
    return xxhash.xxh3_64_intdigest(data)  # type: ignore[arg-type]


def pack_header(
    info: ChunkInfo, lengths: NDArray[np.uint32], checksums: NDArray[np.uint64], bases: NDArray[np.uint8], scores: bytes
) -> bytes:
    """Header of a file; arrays are shaped as in `Header`, `bases` with a last axis of head_dim or 0."""
    layout = info.layout
    header_bytes = _FIXED.size + lengths.size * 12 + bases.size + _CHECKSUM.size
    file_bytes = header_bytes + len(scores) + int(lengths.sum(dtype=np.uint64))
    fixed = _FIXED.pack(
        MAGIC, VERSION, _HAS_SCORES if info.has_scores else 0, header_bytes, file_bytes,
        bytes.fromhex(info.key), bytes.fromhex(info.fingerprint), bytes.fromhex(info.predecessor) or bytes(32),
        info.codec.encode(), _DTYPES.index(layout.dtype), layout.layers, layout.kv_heads, layout.head_dim,
        info.tokens, lengths.shape[1], info.base_position, bases.shape[3] // layout.head_dim, 0, checksum(scores),
    )  # fmt: skip
    body = b"".join((fixed, checksums.astype("<u8").tobytes(), lengths.astype("<u4").tobytes(), bases.tobytes()))
    return body + _CHECKSUM.pack(checksum(body))


def read_header(source: Source) -> Header:
    """Read and check the header of a file, allocating no more than the header's own size.

    Raises UnsupportedVersion, TruncatedChunk (the file's size is not the stated one), CorruptChunk or OSError.
    """
    data = source.read(0, min(HEADER_GUESS, source.size))
    header_bytes = _check_fixed(data, source.size)
    if header_bytes > len(data):
        data = source.read(0, header_bytes)
    body = data[: header_bytes - _CHECKSUM.size]
    if _CHECKSUM.unpack_from(data, len(body))[0] != checksum(body):
        raise CorruptChunk("chunk header: wrong checksum")
    return _parse_body(body, source.size)


def _check_fixed(data: memoryview, size: int) -> int:
    """Check what stands before the fingerprint against the file's size; returns the header's bytes."""
    if len(data) < _FIXED.size:
        raise TruncatedChunk(f"chunk file: {len(data)} bytes, a header has at least {_FIXED.size}")
    magic, version, _, header_bytes, file_bytes = _FIXED.unpack_from(data)[:5]
    if magic != MAGIC:
        raise CorruptChunk(f"chunk file: starts with {magic!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise UnsupportedVersion(f"chunk file: format version {version}, expected {VERSION}")
    if file_bytes != size or header_bytes > size:
        raise TruncatedChunk(f"chunk file: {size} bytes, its header states {file_bytes} with {header_bytes} of header")
    if header_bytes < _FIXED.size + _CHECKSUM.size:
        raise CorruptChunk(f"chunk header: {header_bytes} bytes, expected at least {_FIXED.size + _CHECKSUM.size}")
    return int(header_bytes)


def _parse_body(body: memoryview, file_bytes: int) -> Header:
    (_, _, flags, header_bytes, _, key, fingerprint, predecessor, codec, dtype, layers, kv_heads, head_dim,
     tokens, blocks, base_position, base_bytes, _, scores_checksum) = _FIXED.unpack_from(body)  # fmt: skip
    sections = layers * blocks * 2 * kv_heads
    bases = layers * 2 * kv_heads * head_dim * base_bytes
    sane = dtype < len(_DTYPES) and head_dim >= 1 and base_bytes <= 1 and 1 <= blocks <= tokens
    if not sane or not 1 <= sections <= MAX_SECTIONS:
        raise CorruptChunk(f"chunk header: {blocks} blocks, {tokens} tokens, {sections} sections, dtype {dtype}")
    if _FIXED.size + sections * 12 + bases != len(body):
        raise CorruptChunk(f"chunk header: {len(body)} bytes do not hold {sections} sections and {bases} bases")
    layout = KVLayout(layers, kv_heads, head_dim, _DTYPES[dtype])
    info = ChunkInfo(
        ChunkKey(key.hex()), fingerprint.hex(), layout, tokens, base_position, _codec_name(codec),
        predecessor.hex() if any(predecessor) else "", bool(flags & _HAS_SCORES),
    )  # fmt: skip
    shape = (layers, blocks, 2, kv_heads)
    checksums = np.frombuffer(body, "<u8", sections, _FIXED.size).reshape(shape)
    lengths = np.frombuffer(body, "<u4", sections, _FIXED.size + sections * 8)
    table = np.frombuffer(body, np.uint8, bases, _FIXED.size + sections * 12)
    offsets = _offsets(info, blocks, lengths, header_bytes, file_bytes)
    bases_shape = (layers, 2, kv_heads, head_dim * base_bytes)
    return Header(info, blocks, offsets, checksums, table.reshape(bases_shape), header_bytes, scores_checksum)


def _offsets(
    info: ChunkInfo, blocks: int, lengths: NDArray[np.uint32], header_bytes: int, file_bytes: int
) -> NDArray[np.int64]:
    largest = -(-info.tokens // blocks) * info.layout.head_dim * info.layout.dtype.bits.itemsize
    if largest > MAX_SECTION_BYTES or int(lengths.max()) > largest:
        raise CorruptChunk(f"chunk header: a payload of {lengths.max()} bytes for sections of {largest}")
    offsets = np.empty(lengths.size + 1, np.int64)
    offsets[0] = header_bytes + (info.tokens * 2 if info.has_scores else 0)
    np.cumsum(lengths, out=offsets[1:])
    offsets[1:] += offsets[0]
    if offsets[-1] != file_bytes:
        raise TruncatedChunk(f"chunk file: {file_bytes} bytes, its payloads end at {offsets[-1]}")
    return offsets


def _codec_name(field: bytes) -> str:
    try:
        return field.rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError as error:
        raise CorruptChunk(f"chunk header: codec name {field!r} is not ASCII") from error
