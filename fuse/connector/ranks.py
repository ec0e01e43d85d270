"""Ranks: the tensor-parallel workers of one engine, each of which holds its share of the KV heads.

Their threads load on their own, but every forward pass is one of all ranks together: before it they must agree on what
is to be computed, or they would wait for each other for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from vllm.distributed import get_tp_group

from fuse.runs import Run


@dataclass(frozen=True)
class Ranks:
    """One rank among `size`; `kv_heads` of the whole model, `group` for host tensors.

    Methods are called by every rank in the same order, on the worker's thread; alone, they do nothing.
    """

    rank: int
    size: int
    kv_heads: int
    group: Any

    @classmethod
    def of(cls, config: Any, layer_heads: int) -> "Ranks":
        """Return this worker's place in vLLM's `config`; its layers have `layer_heads` KV heads here."""
        group = get_tp_group()
        alone = group.world_size == 1
        heads = layer_heads if alone else config.model_config.get_total_num_kv_heads()
        return cls(group.rank_in_group, group.world_size, heads, group.cpu_group)

    @property
    def heads(self) -> range:
        """The KV heads of this rank. More ranks than heads: several hold the same one."""
        if self.size > self.kv_heads:
            head = self.rank * self.kv_heads // self.size
            return range(head, head + 1)
        share = self.kv_heads // self.size
        return range(self.rank * share, (self.rank + 1) * share)

    def whole(self, data: torch.Tensor) -> torch.Tensor | None:
        """Put the shares `[layers, 2, tokens, heads, head_dim]` of all ranks together on rank 0; `None` elsewhere."""
        if self.size == 1:
            return data
        shares = [torch.empty_like(data) for _ in range(self.size)] if self.rank == 0 else None
        raw = [share.view(torch.uint8) for share in shares] if shares else None
        dist.gather(data.contiguous().view(torch.uint8), raw, group=self.group, group_dst=0)
        every = max(1, self.size // self.kv_heads)
        return torch.cat(shares[::every], dim=3) if shares else None

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean of all ranks' float32 `values`, which are overwritten."""
        if self.size > 1:
            dist.all_reduce(values, group=self.group)
        return values / self.size

    def most(self, values: torch.Tensor) -> torch.Tensor:
        """Return the largest of all ranks' `values`, element by element."""
        if self.size == 1:
            return values
        host = values.cpu()
        dist.all_reduce(host, op=dist.ReduceOp.MAX, group=self.group)
        return host.to(values.device)

    def common(self, flags: Sequence[bool]) -> list[bool]:
        """Return which of `flags` are set on every rank."""
        if self.size == 1:
            return list(flags)
        counts = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(counts, op=dist.ReduceOp.MIN, group=self.group)
        return [bool(count) for count in counts.tolist()]

    def first(self, runs: Sequence[Run]) -> list[Run]:
        """Return rank 0's `runs`."""
        if self.size == 1:
            return list(runs)
        count = torch.tensor([len(runs)])
        dist.broadcast(count, group=self.group, group_src=0)
        table = torch.tensor(runs if self.rank == 0 else [(0, 0)] * int(count), dtype=torch.int64).view(-1, 2)
        dist.broadcast(table, group=self.group, group_src=0)
        return [(start, end) for start, end in table.tolist()]
