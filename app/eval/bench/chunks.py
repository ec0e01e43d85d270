"""What the codec and the store are measured on: K and V of a real model, and made-up ones of another shape."""

import hashlib
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from store.chunk import Bits, KVChunk, KVDType, KVLayout
from store.keys import chunk_key

FINGERPRINT = hashlib.sha256(b"model").hexdigest()
REAL_LAYOUT = KVLayout(layers=30, kv_heads=3, head_dim=64, dtype=KVDType.BF16)
"""SmolLM2-135M's."""

REAL_TOKENS = 812
CHUNK_TOKENS = 512
WIDE_LAYOUT = KVLayout(layers=8, kv_heads=8, head_dim=128, dtype=KVDType.BF16)


def real_kv(model_dir: Path) -> Bits:
    """K, rotated as it is cached, and V of 812 tokens of Python's reference, by the model in torch.

    `[layers, 2, kv_heads, tokens, head_dim]` as bf16 bits. Raises OSError where the folder holds no such model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = topics["with"] + topics["exceptions"] + topics["objects"] + topics["import"]
    ids = AutoTokenizer.from_pretrained(model_dir)(text, return_tensors="pt").input_ids[:, :REAL_TOKENS]
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    with torch.inference_mode():
        cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
    layers = [torch.stack((layer.keys[0], layer.values[0])) for layer in cache.layers]
    bits: Bits = torch.stack(layers).view(torch.int16).numpy().view(np.uint16)
    return bits


def real_chunk(kv: Bits, first: int = REAL_TOKENS - CHUNK_TOKENS, end: int = REAL_TOKENS) -> KVChunk:
    """Tokens `first` to `end` of `real_kv`, laid out as an engine hands them over."""
    key = chunk_key(FINGERPRINT, "", range(first, end))
    return KVChunk(key, FINGERPRINT, REAL_LAYOUT, first, token_major(kv[:, :, :, first:end]))


def wide_chunk(tokens: int = CHUNK_TOKENS) -> KVChunk:
    """Gaussian values in heads of 128 channels."""
    data = token_major(gaussian(WIDE_LAYOUT, tokens))
    return KVChunk(chunk_key(FINGERPRINT, "", [0]), FINGERPRINT, WIDE_LAYOUT, 0, data)


def gaussian(layout: KVLayout, tokens: int, seed: int = 0) -> Bits:
    """Values whose scale differs by channel, as KV values' does: bits `[layers, 2, kv_heads, tokens, head_dim]`."""
    rng = np.random.default_rng(seed)
    shape = (layout.layers, 2, layout.kv_heads, 1, layout.head_dim)
    values = rng.normal(size=(*shape[:3], tokens, shape[4])) * np.exp(rng.normal(size=shape))
    if layout.dtype is KVDType.FP16:
        return np.asarray(values, np.float16).view(np.uint16)
    bits = np.asarray(values, np.float32).view(np.uint32)
    return bits if layout.dtype is KVDType.FP32 else np.asarray(bits >> 16, np.uint16)


def token_major(data: Bits) -> Bits:
    """The same values, token-major in memory, as they come out of a paged cache."""
    return np.ascontiguousarray(data.transpose(0, 1, 3, 2, 4)).transpose(0, 1, 3, 2, 4)
