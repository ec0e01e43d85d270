"""Forward passes of the worker's own model, outside vLLM's schedule."""

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from vllm.forward_context import set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata

MOST_SEQUENCES = 512
"""Sequences in one pass; backends on GPUs size their buffers by it."""


class OutsidePasses:
    """Runs passes with attention metadata builders of its own.

    A builder keeps buffers and plans from one build to the next (FlashInfer's wrappers, the schedule of FlashAttention
    3), and the engine's have been filled for its step before a pass of ours runs in it. The engine's also have room for
    `max_num_seqs` sequences only. Read in the sources of vLLM 0.32; the CPU backend's builder keeps nothing.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        config = copy(runner.vllm_config)
        config.scheduler_config = copy(config.scheduler_config)
        config.scheduler_config.max_num_seqs = MOST_SEQUENCES
        self._groups = [replace(group, metadata_builders=[]) for groups in runner.attn_groups for group in groups]
        for group in self._groups:
            group.create_metadata_builders(config, runner.device)

    def run(self, common: CommonAttentionMetadata, token_ids: torch.Tensor, positions: torch.Tensor) -> None:
        """Run the model uncompiled over `token_ids` at `positions`, both `[tokens]`; K/V go where `common` says."""
        metadata: dict[str, Any] = {}
        for group in self._groups:
            built = group.get_metadata_builder().build(common_prefix_len=0, common_attn_metadata=common)
            metadata.update(dict.fromkeys(group.layer_names, built))
        with (
            torch.inference_mode(),
            set_forward_context(
                metadata,
                self._runner.vllm_config,
                num_tokens=len(positions),
                slot_mapping=dict.fromkeys(metadata, common.slot_mapping),
                skip_compiled=True,
            ),
        ):
            self._runner.model(input_ids=token_ids, positions=positions)
