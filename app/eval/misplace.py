"""Copying a stored chunk under another key and another claim of where it was computed."""

from typing import TYPE_CHECKING

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
        chunk = KVChunk(target, fingerprint, reader.info.layout, base_position, reader.read())
    store.put(chunk)
