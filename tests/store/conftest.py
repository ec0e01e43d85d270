from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.eval.bench.chunks import FINGERPRINT, gaussian
from store import KVChunk, KVDType, KVLayout, StoreConfig, chunk_key
from store.deflate import Backend

__all__ = ["FINGERPRINT", "gaussian"]


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
