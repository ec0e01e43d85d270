"""Encoding and decoding of whole chunks in memory, as the tests need it."""

from typing import Any

import numpy as np

from store.chunk import KVChunk
from store.codec import Codecs
from store.deflate import SoftwareDeflate
from store.reader import ChunkReader
from store.source import BytesSource
from store.writer import encode_chunk

CODECS = Codecs(SoftwareDeflate())


def encode(chunk: KVChunk, chain: str = "a4-deflate") -> bytes:
    return b"".join(encode_chunk(chunk, chain, CODECS.get(chain, chunk.layout.dtype)).parts)


def reader(file: bytes) -> ChunkReader:
    return ChunkReader(BytesSource(memoryview(file)), CODECS)


def read_all(opened: ChunkReader, heads: range | None = None) -> np.ndarray[Any, Any]:
    """The whole chunk as `[layers, 2, heads, tokens, head_dim]`."""
    layout = opened.info.layout
    count = layout.kv_heads if heads is None else len(heads)
    shape = (layout.layers, 2, count, opened.info.tokens, layout.head_dim)
    out = np.full(shape, 0xA5A5, layout.dtype.bits)
    for layer in range(layout.layers):
        opened.read_layer(layer, out[layer, 0], out[layer, 1], heads=heads)
    return out
