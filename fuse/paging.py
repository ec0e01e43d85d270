"""The paged KV cache as seen from outside: slots of positions, and reading K/V back through a probed layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch


def slot_mapping(block_ids: torch.Tensor, positions: torch.Tensor, block_size: int) -> torch.Tensor:
    """Return the slot `[n]` int64 of each position, given the request's block table `[blocks]`."""
    blocks = block_ids[torch.div(positions, block_size, rounding_mode="floor")]
    return (blocks * block_size + positions % block_size).to(torch.int64)


@dataclass(frozen=True)
class BlockLayout:
    """Where the elements of K, or of V, of one cache block lie in a layer's flat storage.

    offsets: `[block_size, kv_heads, head_dim]` int64, inside a block. stride: elements from one block to the next.
    """

    offsets: torch.Tensor
    stride: int

    def copy(self, cache: torch.Tensor, blocks: torch.Tensor, rows: slice) -> torch.Tensor:
        """Copy some blocks `[n]` out of a layer's cache, of these the `rows`: `[tokens, kv_heads, head_dim]`."""
        flat = flat_view(cache)
        if self._strides is None:
            return flat[((blocks * self.stride)[:, None, None, None] + self.offsets).flatten(0, 1)[rows]]
        first, last = int(self.offsets[0, 0, 0]), int(self.offsets[-1, -1, -1])
        count = (len(flat) - 1 - last) // self.stride + 1
        view = flat[first:].as_strided((count, *self.offsets.shape), (self.stride, *self._strides))
        return view[blocks].flatten(0, 1)[rows]

    @cached_property
    def _strides(self) -> tuple[int, ...] | None:
        """The strides of the offsets, if a strided tensor has them all: it is copied five times as fast (measured)."""
        first, shape = self.offsets[0, 0, 0], self.offsets.shape
        second = [tuple(int(axis == other and shape[axis] > 1) for other in range(3)) for axis in range(3)]
        strides = tuple(int(self.offsets[index] - first) for index in second)
        index = torch.cartesian_prod(*(torch.arange(size) for size in shape)).view(*shape, 3)
        strided = first + (index * torch.tensor(strides)).sum(-1).to(first.device)
        return strides if torch.equal(strided, self.offsets) else None


@dataclass(frozen=True)
class PagedLayout:
    """How every layer's cache is laid out, as `probe.py` found it."""

    keys: BlockLayout
    values: BlockLayout

    def reader(self, block_ids: Sequence[int], start: int, end: int) -> "PagedReader":
        """Return a reader of positions `start <= p < end` of the request that owns `block_ids`."""
        size = self.keys.offsets.shape[0]
        first, last = start // size, -(-end // size)
        blocks = torch.tensor(block_ids[first:last], device=self.keys.offsets.device)
        return PagedReader(self, blocks, slice(start - first * size, end - first * size))


@dataclass(frozen=True)
class PagedReader:
    """Copies the same tokens out of any layer: the rows `rows` of the blocks `blocks` `[n]`."""

    layout: PagedLayout
    blocks: torch.Tensor
    rows: slice

    def read(self, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of one layer, in token-major order: `[tokens, kv_heads, head_dim]` each."""
        return self.read_keys(cache), self.read_values(cache)

    def read_keys(self, cache: torch.Tensor) -> torch.Tensor:
        """Return K alone."""
        return self.layout.keys.copy(cache, self.blocks, self.rows)

    def read_values(self, cache: torch.Tensor) -> torch.Tensor:
        """Return V alone."""
        return self.layout.values.copy(cache, self.blocks, self.rows)


def flat_view(cache: torch.Tensor) -> torch.Tensor:
    """View a dense cache tensor as its elements in storage order, whatever order its dimensions are in."""
    return cache.as_strided((cache.numel(),), (1,))
