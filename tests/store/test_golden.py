"""Files written by the first release of format version 1 stay readable for ever. Never write them anew."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from store import KVDType
from tests.store.files import read_all, reader

GOLDEN = {
    KVDType.BF16: "6a93e2d2911cc12bbc3c3ac447ff877015cee1a45a92045e8e5374bfaaac4efe",
    KVDType.FP32: "cb5f19e989685d8211bb766943a6ec179ea19639a9971563cbc3e5c328c33cd7",
}
"""SHA-256 of the values."""

DATA = Path(__file__).with_name("data")


@pytest.mark.parametrize("chain", ["a4-deflate", "a4-zstd", "a5-zstd", "planes-deflate", "raw"])
def test_golden_file(chain: str) -> None:
    opened = reader((DATA / f"v1-{chain}.kvc").read_bytes())
    info = opened.info
    assert (info.codec, info.tokens, info.base_position, info.predecessor) == (chain, 40, 17, "1" * 64)
    assert (info.layout.layers, info.layout.kv_heads, info.layout.head_dim) == (2, 2, 8)
    assert info.layout.dtype is (KVDType.FP32 if chain == "planes-deflate" else KVDType.BF16)
    np.testing.assert_array_equal(opened.scores(), np.arange(40, dtype=np.float16))
    values = read_all(opened)
    assert hashlib.sha256(values.tobytes()).hexdigest() == GOLDEN[info.layout.dtype]
