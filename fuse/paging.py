"""The paged KV cache as seen from outside: slots of positions, and reading K/V back through a probed layout."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


def slot_mapping(block_ids: torch.Tensor, positions: torch.Tensor, block_size: int) -> torch.Tensor:
    """Return the slot `[n]` int64 of each position, given the request's block table `[blocks]`."""
    blocks = block_ids[torch.div(positions, block_size, rounding_mode="floor")]
    return (blocks * block_size + positions % block_size).to(torch.int64)


@dataclass(frozen=True)
class PagedLayout:
    """Where each element of one cache block lies in a layer's flat storage, as `probe.py` found it.

    `keys`, `values`: `[block_size, kv_heads, head_dim]` int64 offsets inside a block; `block_stride`: elements from one
    block to the next.
    """

    keys: torch.Tensor
    values: torch.Tensor
    block_stride: int

    @property
    def block_size(self) -> int:
        return self.keys.shape[0]

    def reader(self, block_ids: Sequence[int], start: int, end: int) -> "PagedReader":
        """Return a reader of positions `start <= p < end` of the request that owns `block_ids`."""
        positions = torch.arange(start, end, device=self.keys.device)
        blocks = torch.tensor(block_ids, device=self.keys.device)[positions // self.block_size]
        base = (blocks * self.block_stride)[:, None, None]
        within = positions % self.block_size
        return PagedReader(base + self.keys[within], base + self.values[within])


@dataclass(frozen=True)
class PagedReader:
    """Flat offsets of some tokens' K and V, `[tokens, kv_heads, head_dim]` each; the same for every layer."""

    keys: torch.Tensor
    values: torch.Tensor

    def read(self, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gather K and V of one layer from its cache, in token-major order."""
        return self.read_keys(cache), self.read_values(cache)

    def read_keys(self, cache: torch.Tensor) -> torch.Tensor:
        """Gather K alone."""
        return flat_view(cache)[self.keys]

    def read_values(self, cache: torch.Tensor) -> torch.Tensor:
        """Gather V alone."""
        return flat_view(cache)[self.values]


def flat_view(cache: torch.Tensor) -> torch.Tensor:
    """View a dense cache tensor as its elements in storage order, whatever order its dimensions are in."""
    return cache.as_strided((cache.numel(),), (1,))
