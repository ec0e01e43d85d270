"""The packaged models become ordinary model folders, once."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from app import models
from app.models import ModelPackageError, prepare_models


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> models.ModelPaths:
    return prepare_models(tmp_path_factory.mktemp("home"))


def test_llm_config_has_what_fusion_needs(prepared: models.ModelPaths) -> None:
    config = AutoConfig.from_pretrained(prepared.llm)
    assert config.rope_parameters == {"rope_theta": 100000.0, "rope_type": "default"}
    assert (config.num_hidden_layers, config.num_key_value_heads, config.head_dim) == (30, 3, 64)
    assert config.max_position_embeddings == 8192
    assert config.dtype == torch.bfloat16


def test_llm_weights_are_plain_bf16(prepared: models.ModelPaths) -> None:
    with safe_open(prepared.llm / "model.safetensors", framework="pt") as weights:
        dtypes = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 (not a mapping)
    assert dtypes == {"BF16"}
    assert "quantization_config" not in json.loads((prepared.llm / "config.json").read_text())


def test_llm_stops_at_the_end_of_its_turn(prepared: models.ModelPaths) -> None:
    tokenizer = AutoTokenizer.from_pretrained(prepared.llm)
    end_of_turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert AutoConfig.from_pretrained(prepared.llm).eos_token_id == end_of_turn
    assert GenerationConfig.from_pretrained(prepared.llm).eos_token_id == end_of_turn
    assert tokenizer.eos_token_id == end_of_turn
    assert tokenizer.model_max_length == 8192


def test_chat_template_renders_turns(prepared: models.ModelPaths) -> None:
    tokenizer = AutoTokenizer.from_pretrained(prepared.llm)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_embedder_tells_meanings_apart(prepared: models.ModelPaths) -> None:
    embedder = SentenceTransformer(str(prepared.embedder), device="cpu", local_files_only=True)
    cat, kitten, tax = embedder.encode(["a cat", "a kitten", "income tax form"], normalize_embeddings=True)
    assert cat.shape == (384,)
    assert cat @ kitten > cat @ tax + 0.3


def test_every_file_can_be_read_by_other_users(prepared: models.ModelPaths) -> None:
    files = [path for folder in (prepared.llm, prepared.embedder) for path in folder.rglob("*") if path.is_file()]
    assert files
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in files)


def test_second_call_writes_nothing(prepared: models.ModelPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_write_folder", lambda *_: pytest.fail("prepared a model twice"))
    assert prepare_models(prepared.llm.parent.parent) == prepared


def test_interrupted_preparation_leaves_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "_write_llm", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_models(tmp_path)
    assert not (tmp_path / "models" / "smollm2-135m-instruct").exists()

    monkeypatch.setattr(models, "_write_llm", lambda folder: (folder / "complete").touch())
    paths = prepare_models(tmp_path)
    assert [path.name for path in paths.llm.iterdir()] == ["complete"]


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "LLM_PACKAGE", "kvfuse-no-such-package")
    with pytest.raises(ModelPackageError, match="kvfuse-no-such-package"):
        prepare_models(tmp_path)
