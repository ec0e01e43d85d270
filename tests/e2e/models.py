"""Tiny random models of many architectures, made on the spot, with the tokenizer of the packaged model.

Random weights give flat distributions that hide mistakes. So they are drawn wide enough for attention to choose among
tokens, and the logits are as far apart as a trained model's.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from fuse.rope import RotaryTable

_SIZES = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "initializer_range": 0.15,
    "tie_word_embeddings": False,
}
_LOGIT_SCALE = 3.0
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_SEED = 5


@dataclass(frozen=True)
class TinyModel:
    """An architecture by its transformers name, and what it has besides the common sizes.

    engine: further arguments of vLLM. neox: see `RotaryTable`. local: attention of the first layer adds nothing, so
    that keys and values of both layers depend on their own token and position alone.
    """

    name: str
    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    neox: bool = True
    local: bool = False

    def write(self, folder: Path, tokenizer: Path) -> RotaryTable | None:
        """Write a model folder with bf16 weights; `tokenizer` is a folder that holds one.

        Returns the rotary table that transformers uses, if any.
        """
        known = AutoConfig.for_model(self.type)  # an architecture without, say, KV heads must not be given any
        sizes = {name: value for name, value in (_SIZES | _vocabulary(tokenizer)).items() if hasattr(known, name)}
        config = AutoConfig.for_model(self.type, **{**sizes, **self.options})
        torch.manual_seed(_SEED)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        self._shape(model)
        model.save_pretrained(folder)
        for name in _TOKENIZER:
            shutil.copy(tokenizer / name, folder)
        return _rotary(model, self.neox)

    @torch.no_grad()
    def _shape(self, model: PreTrainedModel) -> None:
        if not model.config.tie_word_embeddings:
            model.get_output_embeddings().weight.mul_(_LOGIT_SCALE)
        if self.local:
            model.model.layers[0].self_attn.o_proj.weight.zero_()


def _vocabulary(tokenizer: Path) -> dict[str, int]:
    config = AutoConfig.from_pretrained(tokenizer)
    return {name: getattr(config, name) for name in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")}


def _rotary(model: PreTrainedModel, neox: bool) -> RotaryTable | None:
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            return RotaryTable(module.inv_freq.to(torch.float64), neox)
    if dim := getattr(model.config, "rotary_dim", None):  # GPT-J has only a table of sines, of base 10,000
        return RotaryTable(10000.0 ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim), neox)
    return None
