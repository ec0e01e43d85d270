"""Seeing the model turn its keys, instead of knowing how its positions work.

One token that attends only to itself, computed at many positions, must leave keys that differ by the rotary table's
rotation and by nothing else.
"""

from collections.abc import Mapping
from typing import Any

import torch
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import CommonAttentionMetadata

from fuse.connector.passes import OutsidePasses
from fuse.errors import FusionRefused
from fuse.paging import PagedLayout, PagedReader
from fuse.rope import RotaryTable

_FIRST_BLOCK = 1
_TURN_LIMIT = 0.05
"""Largest relative error of a turned key. The bf16 sines of a model err by 0.004, its float32 angles by 6e-8 of the
position; a layer without rotary positions is off by 1."""


def probe_rotation(
    runner: Any, passes: OutsidePasses, layers: Mapping[str, Attention], table: RotaryTable, layout: PagedLayout
) -> None:
    """Let the model compute one token at many positions, and see that only `table` tells its keys apart.

    Each copy is a sequence of its own, in a block of its own. Learned positions change the values; ALiBi, and layers
    without rotary positions among others, leave keys as they are; a table that depends on the length, and a layer with
    a table of its own, turn them otherwise. Overwrites the cache, so run it before the first request.

    Raises:
        FusionRefused: the keys or values of a layer depend on the position in another way.
    """
    device = next(iter(layers.values())).kv_cache.device
    positions = _spread_positions(runner.vllm_config, device)
    blocks = torch.arange(len(positions), device=positions.device) + _FIRST_BLOCK
    _compute_alone(runner, passes, positions, blocks)
    reader = PagedReader(layout, blocks, slice(None, None, runner.vllm_config.cache_config.block_size))
    rotation = table.rotation(positions)
    for name, layer in layers.items():
        keys, values = reader.read(layer.kv_cache)
        turned = keys[:1].repeat(len(keys), 1, 1)
        rotation.apply(turned)
        if (error := _relative_error(values, values[:1])) > _TURN_LIMIT:
            raise FusionRefused(f"values of layer {name} depend on the position (learned positions?): by {error:.2f}")
        if (error := _relative_error(keys, turned)) > _TURN_LIMIT:
            raise FusionRefused(f"keys of layer {name} do not turn by the rotary table: they are off by {error:.2f}")


def _spread_positions(config: Any, device: torch.device) -> torch.Tensor:
    """Return positions from 0 to the last one that the model may reach, as many as fit one block each."""
    last = config.model_config.max_model_len - 1
    positions = [0, last, *(4**power for power in range(16) if 4**power < last)]
    room = config.cache_config.num_gpu_blocks - _FIRST_BLOCK
    return torch.tensor(positions[:room], device=device)


def _compute_alone(runner: Any, passes: OutsidePasses, positions: torch.Tensor, blocks: torch.Tensor) -> None:
    """Compute one token at each of `positions`, as the first token of the block of the same index."""
    count = len(positions)
    slots = blocks * runner.vllm_config.cache_config.block_size
    starts, lengths = torch.arange(count + 1, dtype=torch.int32), torch.ones(count, dtype=torch.int32)
    common = CommonAttentionMetadata(
        query_start_loc=starts.to(positions.device),
        query_start_loc_cpu=starts,
        seq_lens=lengths.to(positions.device),
        seq_lens_cpu_upper_bound=lengths,
        num_reqs=count,
        num_actual_tokens=count,
        max_query_len=1,
        max_seq_len=1,
        block_table_tensor=blocks.to(torch.int32)[:, None],
        slot_mapping=slots,
        causal=True,
        positions=positions,
    )
    token = runner.model_config.get_vocab_size() // 2
    passes.run(common, torch.full_like(positions, token, dtype=torch.int32), positions)


def _relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest relative difference of a token's vector; not finite values count as infinitely far."""
    difference = (found.float() - expected.float()).flatten(1).norm(dim=1)
    error = (difference / expected.float().flatten(1).norm(dim=1).clamp_min(1e-6)).max()
    return float(error.nan_to_num(nan=torch.inf))
