"""A forward pass of the worker's own model, outside vLLM's schedule."""

from typing import Any

import torch
from vllm.forward_context import set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata


def forward(runner: Any, common: CommonAttentionMetadata, token_ids: torch.Tensor, positions: torch.Tensor) -> None:
    """Run the model uncompiled over `token_ids` at `positions`, both `[tokens]`; K/V go where `common` says."""
    metadata: dict[str, Any] = {}
    for group in (group for groups in runner.attn_groups for group in groups):
        built = group.get_metadata_builder().build(common_prefix_len=0, common_attn_metadata=common)
        metadata.update(dict.fromkeys(group.layer_names, built))
    with (
        torch.inference_mode(),
        set_forward_context(
            metadata,
            runner.vllm_config,
            num_tokens=len(positions),
            slot_mapping=dict.fromkeys(metadata, common.slot_mapping),
            skip_compiled=True,
        ),
    ):
        runner.model(input_ids=token_ids, positions=positions)
