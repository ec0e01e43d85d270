"""Fingerprints: what changes the bytes of KV changes them, and nothing else does."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fuse.fingerprint import fingerprint_model
from fuse.hashing import FileHashes

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "hidden_size": 384,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}


def write_model(folder: Path, config: Mapping[str, Any] = CONFIG, weights: bytes = b"weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def write_adapter(folder: Path, weights: bytes = b"adapter", rank: int = 8) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


def digest(model: Path, dtype: str = "bfloat16", kv: str = "bfloat16", scheme: str = "s", **more: Any) -> str:
    return fingerprint_model(model, dtype, kv, scheme, **more).digest()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in CONFIG.items() if key != name}


def test_the_same_model_elsewhere_has_the_same_fingerprint(tmp_path: Path) -> None:
    first = write_model(tmp_path / "served-as-a")
    second = write_model(tmp_path / "served-as-b", {**CONFIG, "_name_or_path": "b", "transformers_version": "5"})
    assert digest(first) == digest(second)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"partial_rotary_factor": 0.5},
        {"max_position_embeddings": 4096},
        {"rms_norm_eps": 1e-6},
        {"num_hidden_layers": 3},
        {"head_dim": 128},
        {"sliding_window": 128},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_of_the_config_changes_it(tmp_path: Path, change: dict[str, Any]) -> None:
    assert digest(write_model(tmp_path / "a")) != digest(write_model(tmp_path / "b", {**CONFIG, **change}))


def test_weights_dtypes_lora_and_ingest_scheme_change_it(tmp_path: Path) -> None:
    model = write_model(tmp_path / "a")
    digests = [
        digest(model),
        digest(write_model(tmp_path / "b", weights=b"weightz")),
        digest(model, dtype="float16"),
        digest(model, kv="float16"),
        digest(model, scheme="another head"),
        digest(model, lora=write_adapter(tmp_path / "l1")),
        digest(model, lora=write_adapter(tmp_path / "l2", b"other")),
        digest(model, lora=write_adapter(tmp_path / "l3", rank=16)),
    ]
    assert len(set(digests)) == len(digests)


def test_new_weights_under_the_same_path_change_it(tmp_path: Path) -> None:
    before = digest(write_model(tmp_path / "model"), cache_dir=tmp_path / "cache")
    after = digest(write_model(tmp_path / "model", weights=b"retrain"), cache_dir=tmp_path / "cache")
    assert before != after


@pytest.mark.parametrize(
    ("config", "layers", "kv_heads", "head_dim"),
    [
        (CONFIG, 4, 2, 64),
        (without("num_key_value_heads"), 4, 6, 64),
        ({**CONFIG, "num_key_value_heads": None, "head_dim": None}, 4, 6, 64),
        ({**CONFIG, "head_dim": 128}, 4, 2, 128),
        ({"model_type": "gptj", "n_layer": 2, "n_head": 4, "n_embd": 256, "rotary_dim": 32}, 2, 4, 64),
        ({"model_type": "mpt", "n_layers": 2, "n_heads": 4, "d_model": 256}, 2, 4, 64),
        ({"model_type": "wrapper", "text_config": CONFIG, "vision_config": {"num_hidden_layers": 9}}, 4, 2, 64),
    ],
    ids=["plain", "no kv heads", "null", "head_dim", "gptj names", "mpt names", "nested"],
)
def test_configs_of_other_shapes_are_read(
    tmp_path: Path, config: dict[str, Any], layers: int, kv_heads: int, head_dim: int
) -> None:
    found = fingerprint_model(write_model(tmp_path / "m", config), "bfloat16", "bfloat16", "s")
    assert (found.layers, found.kv_heads, found.head_dim) == (layers, kv_heads, head_dim)


def test_rope_of_a_nested_config_counts(tmp_path: Path) -> None:
    other = {**CONFIG, "rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}
    first, second = (
        write_model(tmp_path / name, {"text_config": text}) for name, text in (("a", CONFIG), ("b", other))
    )
    assert json.loads(fingerprint_model(second, "d", "d", "s").rope)["rope_parameters"]["rope_theta"] == 5.0
    assert digest(first) != digest(second)


def test_a_config_without_layers_says_what_it_lacks(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", without("num_hidden_layers"))
    with pytest.raises(ValueError, match="names none of num_hidden_layers"):
        digest(model)


def shard(folder: Path, names: tuple[str, ...]) -> Path:
    model = write_model(folder)
    (model / "model.safetensors").unlink()
    for name in names:
        (model / name).write_bytes(name.encode())
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    return model


def test_every_shard_counts(tmp_path: Path) -> None:
    both = ("model-1-of-2.safetensors", "model-2-of-2.safetensors")
    first, second = shard(tmp_path / "a", both), shard(tmp_path / "b", both)
    assert digest(first) == digest(second)
    (second / both[1]).write_bytes(b"other")
    assert digest(first) != digest(second)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    model = shard(tmp_path / "m", ("model-1-of-2.safetensors",))
    with pytest.raises(FileNotFoundError, match=r"lacks weights .* model-2-of-2\.safetensors"):
        digest(model)


def test_weights_in_another_format_are_named(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"expected \*\.safetensors, other weight files: pytorch_model\.bin"):
        digest(model)


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digest(tmp_path)


# Remembered hashes.


def test_a_known_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_model(tmp_path / "m") / "model.safetensors"
    known = FileHashes(tmp_path / "cache").hash(file)
    monkeypatch.setattr("fuse.hashing.blake3", None)  # computing a hash would fail now
    assert FileHashes(tmp_path / "cache").hash(file) == known


@pytest.mark.parametrize("copy", [shutil.copy, shutil.copy2])
def test_a_replaced_file_of_the_same_size_is_read_again(tmp_path: Path, copy: Callable[..., Any]) -> None:
    """Also when the copy keeps the old modification time."""
    file, other = tmp_path / "weights", tmp_path / "other"
    file.write_bytes(b"one")
    hashes = FileHashes(tmp_path / "cache")
    before = hashes.hash(file)
    other.write_bytes(b"two")
    shutil.copystat(file, other)
    copy(other, file)
    assert hashes.hash(file) != before


@pytest.mark.parametrize("damage", ["", "{", "[1, 2]"])
def test_a_damaged_cache_is_rebuilt(tmp_path: Path, damage: str) -> None:
    file = write_model(tmp_path / "m") / "model.safetensors"
    hashes = FileHashes(tmp_path)
    expected = FileHashes().hash(file)
    hashes.hash(file)
    (cache,) = tmp_path.glob("*.json")
    cache.write_text(damage)
    assert hashes.hash(file) == expected
    assert expected in cache.read_text()
