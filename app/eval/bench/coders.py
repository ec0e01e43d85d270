"""The coders that the store's chains are measured against, on the raw bytes of a chunk."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from store.chunk import KVChunk

RIVAL_TOKENS = 64
"""Tokens of the published rival's block."""


@dataclass(frozen=True)
class Coder:
    """A lossless coder of bytes, named for a table; `unpack(pack(raw)) == raw`."""

    name: str
    pack: Callable[[bytes], Any]
    unpack: Callable[[Any], bytes]


def coders(chunk: KVChunk) -> Iterator[Coder]:
    """Every coder whose package is installed."""
    yield Coder("raw zlib-1", lambda raw: zlib.compress(raw, 1), zlib.decompress)
    for make in (_igzip, _zstd, lambda: _rival(chunk), _blosc2, _zipnn):
        try:
            yield make()
        except ImportError as error:
            print(f"not measured: {error}")


def raw_bytes(chunk: KVChunk) -> bytes:
    """A chunk's K and V as an engine holds them: `[layers, 2, tokens, kv_heads, head_dim]`."""
    return chunk.data.transpose(0, 1, 3, 2, 4).tobytes()


def size_of(packed: Any) -> int:
    """Bytes of what `pack` returned."""
    return sum(map(len, packed)) if isinstance(packed, list) else len(packed)


def _igzip() -> Coder:
    from isal import igzip_lib

    return Coder("raw igzip-1", lambda raw: igzip_lib.compress(raw, 1), igzip_lib.decompress)


def _zstd() -> Coder:
    import zstandard

    return Coder("raw zstd-1", zstandard.ZstdCompressor(1).compress, zstandard.ZstdDecompressor().decompress)


def _rival(chunk: KVChunk) -> Coder:
    """Build the published rival's layout: blocks of 64 tokens of one layer's K or V, byte planes, zlib-6."""
    block = RIVAL_TOKENS * chunk.layout.kv_heads * chunk.layout.head_dim

    def pack(raw: bytes) -> list[bytes]:
        values = np.frombuffer(raw, np.uint8).reshape(-1, 2)
        planes = (values[start : start + block, ::-1].T.tobytes() for start in range(0, len(values), block))
        return [zlib.compress(plane, 6) for plane in planes]

    def unpack(packed: list[bytes]) -> bytes:
        blocks = (np.frombuffer(zlib.decompress(block), np.uint8).reshape(2, -1) for block in packed)
        return b"".join(planes[::-1].T.tobytes() for planes in blocks)

    return Coder("rival: planes + zlib-6", pack, unpack)


def _blosc2() -> Coder:
    import blosc2

    blosc2.set_nthreads(1)
    options: dict[str, Any] = {
        "typesize": 2,
        "clevel": 1,
        "filter": blosc2.Filter.SHUFFLE,
        "codec": blosc2.Codec.ZSTD,
    }
    return Coder("blosc2 shuffle+zstd-1", lambda raw: blosc2.compress(raw, **options), blosc2.decompress)


def _zipnn() -> Coder:
    from zipnn import ZipNN

    coder = ZipNN(bytearray_dtype="bfloat16", input_format="byte", threads=1)
    return Coder(
        "zipnn",
        lambda raw: bytes(coder.compress(bytearray(raw))),
        lambda packed: bytes(coder.decompress(bytearray(packed))),
    )
