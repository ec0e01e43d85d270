"""ModelFingerprint of a model folder: everything that changes the bytes of its KV."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blake3 import blake3

from fuse.hashing import FileHashes
from store.keys import ModelFingerprint

_WEIGHTS = "*.safetensors"
_WEIGHT_INDEX = "*.safetensors.index.json"
_COSMETIC = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")
"""Entries of a `config.json` that say nothing about its model's KV; `dtype` is the engine's choice."""
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", *_HEADS)
_WIDTH = ("hidden_size", "n_embd", "d_model")


def fingerprint_model(
    model: Path, dtype: str, kv_dtype: str, scheme: str, lora: Path | None = None, cache_dir: Path | None = None
) -> ModelFingerprint:
    """Fingerprint the model in folder `model` (Hugging Face layout, safetensors weights).

    Args:
        dtype: the dtype the engine computes in.
        kv_dtype: the dtype of the paged cache.
        scheme: the ingest scheme with its fixed tokens, `IngestScheme.describe()`.
        lora: folder of the adapter that the engine applies.
        cache_dir: where hashes of weight files are remembered; by default they are computed every time.

    Raises:
        FileNotFoundError: no `config.json`, or no or not all weights.
        ValueError: the config does not say how many layers or heads the model has.
    """
    config = json.loads((model / "config.json").read_text())
    text = {**config, **(config.get("text_config") or {})}
    hashes = FileHashes(cache_dir)
    heads = _number(model, text, _HEADS)
    return ModelFingerprint(
        weights=_hash_folder(model, config, hashes),
        dtype=dtype,
        layers=_number(model, text, _LAYERS),
        kv_heads=_number(model, text, _KV_HEADS),
        head_dim=text.get("head_dim") or _number(model, text, _WIDTH) // heads,
        rope=_rope(text),
        kv_dtype=kv_dtype,
        lora=_hash_folder(lora, json.loads((lora / "adapter_config.json").read_text()), hashes) if lora else "",
        ingest=scheme,
    )


def _number(model: Path, config: Mapping[str, Any], names: Sequence[str]) -> int:
    for name in names:
        if config.get(name):
            return int(config[name])
    raise ValueError(f"{model / 'config.json'} names none of {', '.join(names)}")


def _rope(config: Mapping[str, Any]) -> str:
    return json.dumps(
        {name: config[name] for name in config if re.search("rope|rotary|position", name)}, sort_keys=True
    )


def _hash_folder(folder: Path, config: Mapping[str, Any], hashes: FileHashes) -> str:
    """Hash the weights, and the config that says how to read them."""
    digest = blake3(
        json.dumps({name: config[name] for name in config if name not in _COSMETIC}, sort_keys=True).encode()
    )
    for file in _weights(folder):
        digest.update(file.name.encode() + b"\0" + bytes.fromhex(hashes.hash(file)))
    return digest.hexdigest()


def _weights(folder: Path) -> list[Path]:
    files = sorted(folder.glob(_WEIGHTS))
    if not files:
        others = ", ".join(sorted(file.name for file in folder.glob("*.bin"))) or "none"
        raise FileNotFoundError(f"{folder} holds no weights: expected {_WEIGHTS}, other weight files: {others}")
    for index in folder.glob(_WEIGHT_INDEX):
        named = set(json.loads(index.read_text())["weight_map"].values())
        if missing := sorted(named - {file.name for file in files}):
            raise FileNotFoundError(f"{folder} lacks weights that {index.name} names: {', '.join(missing)}")
    return files
