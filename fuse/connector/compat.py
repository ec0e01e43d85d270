"""Which models can be fused: plain full attention with one static rotary embedding, told apart at start-up."""

from typing import Any

import torch
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.rotary_embedding import (
    Llama3RotaryEmbedding,
    RotaryEmbedding,
    YaRNScalingRotaryEmbedding,
)

from fuse.errors import FusionRefused
from fuse.rope import RotaryTable

_STATIC_ROTARY = (RotaryEmbedding, Llama3RotaryEmbedding, YaRNScalingRotaryEmbedding)
_SERVABLE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def attention_layers(runner: Any) -> dict[str, Attention]:
    """Return the model's attention layers in forward order.

    Raises:
        FusionRefused: some layer is not plain full attention over an unquantised cache of one shape.
    """
    config = runner.vllm_config
    layers: dict[str, Attention] = get_layers_from_vllm_config(config, Attention)
    cached = {name for groups in runner.attn_groups for group in groups for name in group.layer_names}
    if not layers or cached != set(layers):
        raise FusionRefused("the model keeps state in layers that are not plain attention (MLA, SSM, cross-attention)")
    if config.cache_config.cache_dtype not in ("auto", "bfloat16", "float16"):
        raise FusionRefused(f"the KV cache is quantised ({config.cache_config.cache_dtype})")
    if config.model_config.dtype not in _SERVABLE_DTYPES:
        raise FusionRefused(f"KV in {config.model_config.dtype} cannot be stored")
    for name, layer in layers.items():
        _require_full_attention(name, layer)
    if len({(layer.num_kv_heads, layer.head_size) for layer in layers.values()}) > 1:
        raise FusionRefused("layers differ in KV heads or head size")
    return layers


def _require_full_attention(name: str, layer: Attention) -> None:
    window = getattr(layer, "sliding_window", None)
    if window not in (None, -1):
        raise FusionRefused(f"layer {name} has a sliding window of {window} tokens")
    if getattr(layer.impl, "alibi_slopes", None) is not None:
        raise FusionRefused(f"layer {name} uses ALiBi, not rotary positions")
    if getattr(layer, "kv_sharing_target_layer_name", None) is not None:
        raise FusionRefused(f"layer {name} shares the KV of another layer")


def rotary_table(model: torch.nn.Module) -> RotaryTable:
    """Read the model's rotary frequencies off the angles at position 1 of its own float32 table.

    Raises:
        FusionRefused: no rotary embedding, several different ones, or one that is not a static table.
    """
    modules: dict[int, Any] = {
        id(module): module
        for module in model.modules()
        if "rotary" in type(module).__name__.lower() and hasattr(module, "base")
    }
    if len(modules) != 1:
        raise FusionRefused(f"the model has {len(modules)} different rotary embeddings, expected exactly one")
    (rotary,) = modules.values()
    if type(rotary) not in _STATIC_ROTARY:
        raise FusionRefused(f"rotary embedding {type(rotary).__name__} is not a static table")
    cos, sin = rotary._compute_cos_sin_cache()[1].to(torch.float64).chunk(2, dim=-1)
    return RotaryTable(torch.atan2(sin, cos).cpu(), bool(rotary.is_neox_style))
