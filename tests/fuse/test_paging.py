"""Paged layouts: slots, and reading back through a permutation, on a cache whose layout is known here."""

import torch

from fuse.paging import PagedLayout, slot_mapping


def test_slots_follow_the_block_table() -> None:
    slots = slot_mapping(torch.tensor([5, 2, 9]), torch.tensor([0, 3, 4, 11]), block_size=4)
    assert slots.tolist() == [20, 23, 8, 39]


def test_read_gathers_token_major_from_a_dim_major_cache() -> None:
    blocks, size, heads, dim = 6, 4, 2, 3
    cache = torch.zeros(blocks, 2, heads, dim, size)  # K and V, dim-major inside each block
    cache.copy_(torch.arange(cache.numel(), dtype=torch.float32).view_as(cache))
    offsets = torch.arange(cache[0].numel()).view(2, heads, dim, size).permute(0, 3, 1, 2)
    layout = PagedLayout(offsets[0], offsets[1], cache.stride(0))
    keys, values = layout.reader([4, 1], 2, 7).read(cache)
    expected = cache[[4, 1]].permute(1, 0, 4, 2, 3).reshape(2, 8, heads, dim)[:, 2:7]
    assert torch.equal(keys, expected[0])
    assert torch.equal(values, expected[1])
