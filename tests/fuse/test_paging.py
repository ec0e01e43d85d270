"""Paged layouts: slots, and reading back through a permutation, on a cache whose layout is known here."""

import math

import torch

from fuse.paging import BlockLayout, PagedLayout, slot_mapping


def test_slots_follow_the_block_table() -> None:
    slots = slot_mapping(torch.tensor([5, 2, 9]), torch.tensor([0, 3, 4, 11]), block_size=4)
    assert slots.tolist() == [20, 23, 8, 39]


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).view(shape)


def test_read_gathers_token_major_from_a_dim_major_cache() -> None:
    blocks, size, heads, dim = 6, 4, 2, 3
    cache = numbered(blocks, 2, heads, dim, size)  # K and V, dim-major inside each block
    offsets = torch.arange(cache[0].numel()).view(2, heads, dim, size).permute(0, 3, 1, 2)
    layout = PagedLayout(BlockLayout(offsets[0], cache.stride(0)), BlockLayout(offsets[1], cache.stride(0)))
    keys, values = layout.reader([4, 1], 2, 7).read(cache)
    expected = cache[[4, 1]].permute(1, 0, 4, 2, 3).reshape(2, 8, heads, dim)[:, 2:7]
    assert torch.equal(keys, expected[0])
    assert torch.equal(values, expected[1])


def test_read_skips_the_blocks_in_front_and_bears_a_cache_inside_a_larger_tensor() -> None:
    blocks, size, heads, dim = 5, 2, 1, 3
    cache = numbered(3, 2, blocks, size, heads, dim)[1]  # one layer of three: all K, then all V
    offsets = torch.arange(size * heads * dim).view(size, heads, dim)
    stride = cache.stride(1)
    layout = PagedLayout(BlockLayout(offsets, stride), BlockLayout(offsets + blocks * stride, stride))
    keys, values = layout.reader([3, 0, 4], 2, 5).read(cache)
    assert torch.equal(keys, cache[0, [0, 4]].flatten(0, 1)[:3])
    assert torch.equal(values, cache[1, [0, 4]].flatten(0, 1)[:3])


def test_read_follows_offsets_that_no_strides_have() -> None:
    blocks, size, heads, dim = 4, 2, 2, 4
    cache = numbered(blocks, size * heads * dim)
    offsets = torch.randperm(size * heads * dim, generator=torch.Generator().manual_seed(3)).view(size, heads, dim)
    layout = PagedLayout(BlockLayout(offsets, cache.stride(0)), BlockLayout(offsets.flip(2), cache.stride(0)))
    keys, values = layout.reader([2, 3], 1, 4).read(cache)
    expected = cache[[2, 3]][:, offsets].flatten(0, 1)[1:4]
    assert torch.equal(keys, expected)
    assert torch.equal(values, expected.flip(2))
