"""ModelFingerprint of a model folder: everything that changes the bytes of its KV."""

import json
from pathlib import Path
from typing import Any

from blake3 import blake3

from store.keys import ModelFingerprint

_WEIGHTS = "*.safetensors"


def fingerprint_model(model: Path, dtype: str, kv_dtype: str, scheme: str) -> ModelFingerprint:
    """Fingerprint the model in folder `model` (Hugging Face layout, safetensors weights).

    Args:
        dtype: the dtype the engine computes in.
        kv_dtype: the dtype of the paged cache.
        scheme: the ingest scheme with its fixed tokens, `IngestScheme.describe()`.

    Raises:
        FileNotFoundError: no `config.json` or no weights.
    """
    config = json.loads((model / "config.json").read_text())
    heads = config["num_attention_heads"]
    return ModelFingerprint(
        weights=_hash_weights(model),
        dtype=dtype,
        layers=config["num_hidden_layers"],
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        rope=_rope(config),
        kv_dtype=kv_dtype,
        ingest=scheme,
    )


def _rope(config: dict[str, Any]) -> str:
    names = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "max_position_embeddings")
    return json.dumps({name: config[name] for name in names if name in config}, sort_keys=True)


def _hash_weights(model: Path) -> str:
    files = sorted(model.glob(_WEIGHTS))
    if not files:
        raise FileNotFoundError(f"{model} holds no weights ({_WEIGHTS})")
    digest = blake3()
    for file in files:
        part = blake3(max_threads=blake3.AUTO).update_mmap(file).digest()
        digest.update(file.name.encode() + b"\0" + part)
    return digest.hexdigest()
