"""Copying a stored chunk under another key and another claim of where it was computed."""

from typing import TYPE_CHECKING

import numpy as np

from app.eval.errors import EvalError
from store.chunk import KVChunk
from store.keys import ChunkKey

if TYPE_CHECKING:
    from store.tiered import TieredStore


def copy_to(store: "TieredStore", source: ChunkKey, fingerprint: str, target: ChunkKey, base_position: int) -> None:
    """Store the K/V of `source` as `target`, said to have been computed from `base_position` on.

    Raises:
        EvalError: `source` is not stored.
    """
    reader = store.open(source, fingerprint)
    if reader is None:
        raise EvalError(f"chunk {source[:16]} is not stored: its control copy cannot be made")
    with reader:
        layout = reader.info.layout
        shape = (layout.layers, 2, layout.kv_heads, reader.info.tokens, layout.head_dim)
        data = np.empty(shape, layout.dtype.bits)
        for layer in range(layout.layers):
            reader.read_layer(layer, data[layer, 0], data[layer, 1])
    store.put(KVChunk(target, fingerprint, layout, base_position, data))
