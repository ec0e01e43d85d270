"""Chunks of a real model: savings with everything counted, exactness, and what a rank or a layer reads alone."""

from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest

from store import KVChunk, KVDType, KVLayout, chunk_key
from tests.store.conftest import FINGERPRINT
from tests.store.files import encode, read_all, reader

LAYOUT = KVLayout(layers=30, kv_heads=3, head_dim=64, dtype=KVDType.BF16)


@pytest.fixture(scope="session")
def real_kv(model_dir: Path) -> np.ndarray[Any, Any]:
    """K (rotated, as cached) and V of 812 tokens of the Python reference, bf16 bits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = topics["with"] + topics["exceptions"] + topics["objects"] + topics["import"]
    ids = AutoTokenizer.from_pretrained(model_dir)(text, return_tensors="pt").input_ids[:, :812]
    assert ids.shape == (1, 812)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    with torch.inference_mode():
        cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
    layers = [torch.stack((layer.keys[0], layer.values[0])) for layer in cache.layers]
    return torch.stack(layers).view(torch.int16).numpy().view(np.uint16)


def chunk_of(real_kv: np.ndarray[Any, Any], first: int, end: int) -> KVChunk:
    data = real_kv[:, :, :, first:end]
    return KVChunk(chunk_key(FINGERPRINT, "", range(first, end)), FINGERPRINT, LAYOUT, first, data)


@pytest.mark.parametrize(("first", "end", "least"), [(0, 300, 0.33), (300, 812, 0.335)])
def test_savings_with_everything_counted(real_kv: np.ndarray[Any, Any], first: int, end: int, least: float) -> None:
    chunk = chunk_of(real_kv, first, end)
    file = encode(chunk)
    np.testing.assert_array_equal(read_all(reader(file)), chunk.data)
    saved = 1 - len(file) / chunk.raw_bytes
    print(f"\n{end - first} tokens: {saved:.2%} saved")
    assert saved >= least


def test_one_head_of_one_layer_reads_alone(real_kv: np.ndarray[Any, Any]) -> None:
    chunk = chunk_of(real_kv, 0, 400)
    opened = reader(encode(chunk))
    k_out, v_out = np.empty((2, 1, 400, 64), np.uint16)
    opened.read_layer(29, k_out, v_out, heads=range(2, 3))
    np.testing.assert_array_equal(np.stack((k_out, v_out)), chunk.data[29, :, 2:3])
