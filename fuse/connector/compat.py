"""Which models can be fused: plain full attention with one static rotary embedding, told apart at start-up.

Nothing is refused because it is known to be different; a model is accepted when each layer is known to be plain and
`turning.py` has seen its keys turn as expected.
"""

from typing import Any

import torch
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.rotary_embedding import (
    LinearScalingRotaryEmbedding,
    Llama3RotaryEmbedding,
    NTKScalingRotaryEmbedding,
    RotaryEmbedding,
    YaRNScalingRotaryEmbedding,
)
from vllm.v1.attention.backend import AttentionType
from vllm.v1.kv_cache_interface import FullAttentionSpec

from fuse.errors import FusionRefused
from fuse.rope import RotaryTable

_STATIC_ROTARY = (
    RotaryEmbedding,
    LinearScalingRotaryEmbedding,
    Llama3RotaryEmbedding,
    NTKScalingRotaryEmbedding,
    YaRNScalingRotaryEmbedding,
)
_STATIC_TRANSFORMERS_ROPE = ("default", "linear", "llama3", "yarn")
_SERVABLE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def attention_layers(runner: Any) -> dict[str, Attention]:
    """Return the model's attention layers in forward order.

    Raises:
        FusionRefused: a layer is not plain full attention over an unquantised cache of one shape, or the engine runs
            in a mode that the recompute pass does not know.
    """
    config = runner.vllm_config
    _require_plain_engine(config)
    _require_whole_blocks(runner)
    cached = {name for groups in runner.attn_groups for group in groups for name in group.layer_names}
    layers = {name: layer for name, layer in _layers(config).items() if name in cached}
    if not layers or cached != set(layers):
        raise FusionRefused("the model keeps state in layers that are not plain attention (MLA, SSM, cross-attention)")
    for name, layer in layers.items():
        _require_full_attention(name, layer, config)
    if len({(layer.num_kv_heads, layer.head_size) for layer in layers.values()}) > 1:
        raise FusionRefused("layers differ in KV heads or head size")
    return layers


def rotary_table(model: torch.nn.Module) -> RotaryTable:
    """Read the rotary frequencies off the model's own embedding.

    Raises:
        FusionRefused: no rotary embedding, several different ones, or one that is not a static table.
    """
    found: dict[int, Any] = {id(module): module for module in model.modules() if _is_rotary(module)}
    if not found:
        raise FusionRefused("the model has no rotary embedding: its positions are learned, ALiBi, or of another kind")
    if len(found) > 1:
        kinds = ", ".join(sorted(type(rotary).__name__ for rotary in found.values()))
        raise FusionRefused(f"the model has {len(found)} different rotary embeddings ({kinds}), expected exactly one")
    (rotary,) = found.values()
    if type(rotary) in _STATIC_ROTARY:
        cos, sin = rotary._compute_cos_sin_cache().to(torch.float64).cpu().chunk(2, dim=-1)
        return RotaryTable(_frequencies(torch.atan2(sin, cos)), bool(rotary.is_neox_style))
    if getattr(rotary, "rope_type", None) in _STATIC_TRANSFORMERS_ROPE:
        return RotaryTable(rotary.inv_freq.to(torch.float64).cpu(), neox=True)
    raise FusionRefused(f"rotary embedding {type(rotary).__name__} is not a static table")


def _require_plain_engine(config: Any) -> None:
    parallel, model = config.parallel_config, config.model_config
    modes = {
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "data parallelism inside one engine": parallel.data_parallel_size > 1,
        "context parallelism": parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1,
        "speculative decoding": config.speculative_config is not None,
        "LoRA adapters": config.lora_config is not None,
        "M-RoPE": model.uses_mrope,
        f"dtype {model.dtype}": model.dtype not in _SERVABLE_DTYPES,
    }
    if used := [mode for mode, on in modes.items() if on]:
        raise FusionRefused(f"fusion does not support {', '.join(used)}")


def _require_whole_blocks(runner: Any) -> None:
    """Some backends split the cache's blocks into smaller ones of their own, which a block table then has to name."""
    size = runner.vllm_config.cache_config.block_size
    for group in (group for groups in runner.attn_groups for group in groups):
        if (used := group.get_metadata_builder().kv_cache_spec.block_size) != size:
            raise FusionRefused(f"the attention backend splits the KV cache's blocks of {size} tokens into {used}")


def _layers(config: Any) -> dict[str, Attention]:
    modules: dict[str, Any] = config.compilation_config.static_forward_context
    return {name: module for name, module in modules.items() if type(module) is Attention}


def _require_full_attention(name: str, layer: Attention, config: Any) -> None:
    if getattr(layer.impl, "alibi_slopes", None) is not None:
        raise FusionRefused(f"layer {name} uses ALiBi, not rotary positions")
    if layer.sliding_window is not None:
        raise FusionRefused(f"layer {name} has a sliding window of {layer.sliding_window} tokens")
    if layer.attn_type != AttentionType.DECODER:
        raise FusionRefused(f"layer {name} is {layer.attn_type} attention, not causal")
    if layer.kv_sharing_target_layer_name is not None:
        raise FusionRefused(f"layer {name} shares the KV of another layer")
    dtype = config.model_config.dtype
    plain = FullAttentionSpec(
        block_size=config.cache_config.block_size,
        num_kv_heads=layer.num_kv_heads,
        head_size=layer.head_size,
        dtype=dtype,
    )
    if layer.get_kv_cache_spec(config) != plain:
        raise FusionRefused(f"the KV cache of layer {name} is not plain {dtype}: quantised ({layer.kv_cache_dtype})?")


def _is_rotary(module: torch.nn.Module) -> bool:
    """Tell embeddings of vLLM (they have a `base`) and of transformers (`inv_freq`) from their helper modules."""
    return "rotary" in type(module).__name__.lower() and (hasattr(module, "base") or hasattr(module, "inv_freq"))


def _frequencies(angles: torch.Tensor) -> torch.Tensor:
    """Return the frequencies behind float32 `angles` `[positions, rotary_dim / 2]`, known modulo a turn.

    The angle at position 1 gives a first estimate, a late position one as many times better.
    """
    late = min(1024, len(angles) - 1)
    turns = torch.round((angles[1] * late - angles[late]) / (2 * torch.pi))
    return (angles[late] + 2 * torch.pi * turns) / late
