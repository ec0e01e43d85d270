"""What a token's prefill takes, by the model's sizes."""

import json
from pathlib import Path

import torch

from fuse.work import PrefillWork

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 10}


def test_sizes_are_read_from_the_configuration() -> None:
    work = PrefillWork.of_config({**SIZES, "num_key_value_heads": 2, "head_dim": 3})
    assert work == PrefillWork(2 * (2 * 8 * 3 * (4 + 2) + 3 * 8 * 10), 2 * 2 * 4 * 3)
    assert PrefillWork.of_config({**SIZES, "num_key_value_heads": None}) == PrefillWork(
        2 * (2 * 8 * 2 * 8 + 240), 2 * 2 * 4 * 2
    )


def test_active_experts_count() -> None:
    dense, experts = SIZES, {**SIZES, "moe_intermediate_size": 5, "num_experts_per_tok": 4}
    assert PrefillWork.of_config(experts).linear - PrefillWork.of_config(dense).linear == 2 * 3 * 8 * (4 * 5 - 10)


def test_a_real_model_has_as_many_weights(model_dir: Path) -> None:
    work = PrefillWork.of_config(json.loads((model_dir / "config.json").read_text(encoding="utf-8")))
    assert 100e6 < work.linear < 110e6  # of 135 million, 28 of them embeddings


def test_a_token_attends_to_those_before_it_and_itself() -> None:
    assert PrefillWork(10, 2).of_positions(torch.arange(3)).tolist() == [12, 14, 16]


def test_without_known_sizes_every_token_counts_alike() -> None:
    assert PrefillWork.of_config({"n_embd": 8}).of_positions(torch.arange(3)).tolist() == [1, 1, 1]
