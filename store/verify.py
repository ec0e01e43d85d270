"""Checking a chunk by decoding all of it."""

import numpy as np

from store.reader import ChunkReader


def decode_all(reader: ChunkReader) -> None:
    """Decode every layer and the scores. Raises as `ChunkReader.read_layer` does."""
    layout = reader.info.layout
    out = np.empty((2, layout.kv_heads, reader.info.tokens, layout.head_dim), layout.dtype.bits)
    for layer in range(layout.layers):
        reader.read_layer(layer, out[0], out[1])
    reader.scores()
