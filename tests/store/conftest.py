import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store import KVChunk, KVDType, KVLayout, StoreConfig, chunk_key
from store.deflate import Backend

FINGERPRINT = hashlib.sha256(b"model").hexdigest()


def gaussian(layout: KVLayout, tokens: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Values whose scale differs by channel, as KV values' does, as bits `[layers, 2, kv_heads, tokens, head_dim]`."""
    rng = np.random.default_rng(seed)
    shape = (layout.layers, 2, layout.kv_heads, 1, layout.head_dim)
    values = rng.normal(size=(*shape[:3], tokens, shape[4])) * np.exp(rng.normal(size=shape))
    if layout.dtype is KVDType.FP16:
        return values.astype(np.float16).view(np.uint16)
    bits = values.astype(np.float32).view(np.uint32)
    return bits if layout.dtype is KVDType.FP32 else (bits >> 16).astype(np.uint16)


@pytest.fixture
def make_chunk() -> Callable[..., KVChunk]:
    """A chunk of gaussian data; `seed` changes its key and its content."""

    def make(tokens: int = 20, seed: int = 0, dtype: KVDType = KVDType.BF16, **fields: Any) -> KVChunk:
        layout = fields.pop("layout", KVLayout(layers=2, kv_heads=2, head_dim=8, dtype=dtype))
        data = fields.pop("data", gaussian(layout, tokens, seed))
        fields = {"base_position": 17, "fingerprint": FINGERPRINT, **fields}
        return KVChunk(key=chunk_key(FINGERPRINT, "", [seed, tokens]), layout=layout, data=data, **fields)

    return make


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return StoreConfig(tmp_path / "memory", tmp_path / "disk", 1 << 24, 1 << 26, backend=Backend.SOFTWARE, threads=1)
