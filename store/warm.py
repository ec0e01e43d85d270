"""Compiling the kernels ahead of the first chunk."""

import numpy as np

from store.chunk import KVChunk, KVDType, KVLayout
from store.codec import DEFAULT_CHAIN, Codecs
from store.deflate import SoftwareDeflate
from store.keys import chunk_key
from store.reader import ChunkReader
from store.source import BytesSource
from store.writer import encode_chunk


def warm_up() -> None:
    """Compile the kernels, or load them from the cache on disk, by encoding and decoding a tiny chunk.

    Takes seconds the first time on a machine.
    """
    layout = KVLayout(layers=1, kv_heads=2, head_dim=4, dtype=KVDType.BF16)
    fingerprint = "0" * 64
    tokens = 16
    codecs = Codecs(SoftwareDeflate())
    codec = codecs.get(DEFAULT_CHAIN, layout.dtype)
    chunk = KVChunk(chunk_key(fingerprint, "", [0]), fingerprint, layout, 0, np.zeros((1, 2, 2, tokens, 4), np.uint16))
    encoded = encode_chunk(chunk, DEFAULT_CHAIN, codec)
    ChunkReader(BytesSource(memoryview(b"".join(encoded.parts))), codecs).read()
