"""Chunks of a real model: savings with everything counted, exactness, and what a rank or a layer reads alone."""

from pathlib import Path

import numpy as np
import pytest

from app.eval.bench import chunks
from store.chunk import Bits
from tests.store.files import encode, read_all, reader


@pytest.fixture(scope="module")
def real_kv(model_dir: Path) -> Bits:
    return chunks.real_kv(model_dir)


@pytest.mark.parametrize(("first", "end", "least"), [(0, 300, 0.33), (300, 812, 0.335)])
def test_savings_with_everything_counted(real_kv: Bits, first: int, end: int, least: float) -> None:
    chunk = chunks.real_chunk(real_kv, first, end)
    file = encode(chunk)
    np.testing.assert_array_equal(read_all(reader(file)), chunk.data)
    saved = 1 - len(file) / chunk.raw_bytes
    print(f"\n{end - first} tokens: {saved:.2%} saved")
    assert saved >= least


def test_one_head_of_one_layer_reads_alone(real_kv: Bits) -> None:
    chunk = chunks.real_chunk(real_kv, 0, 400)
    opened = reader(encode(chunk))
    k_out, v_out = np.empty((2, 1, 400, 64), np.uint16)
    opened.read_layer(29, k_out, v_out, heads=range(2, 3))
    np.testing.assert_array_equal(np.stack((k_out, v_out)), chunk.data[29, :, 2:3])
