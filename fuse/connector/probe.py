"""Finding the paged cache's layout by writing to it, instead of knowing it.

Backends lay out blocks differently (the CPU backend keeps K dim-major inside a block and V token-major). Every backend
can write: `do_kv_cache_update`. So the digits of each element's index are written as small whole numbers, exact in
every float dtype, and the raw cache is searched for them. A backend that transforms what it stores (a quantised KV
cache) does not give the digits back, and is refused.
"""

import torch
from vllm.model_executor.layers.attention import Attention

from fuse.errors import FusionRefused
from fuse.paging import BlockLayout, PagedLayout, flat_view

_RADIX = 128
_PROBED_BLOCK = 1


def probe_layout(layer: Attention, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> PagedLayout:
    """Find the layout of `layer`'s cache. Overwrites the cache, so run it before the first request.

    Raises:
        FusionRefused: the cache does not hold every written element exactly once.
    """
    shape = (block_size, kv_heads, head_dim)
    blocks = (_PROBED_BLOCK, _PROBED_BLOCK + 1)
    keys, values = ([_offsets(layer, shape, block, which, dtype) for block in blocks] for which in (0, 1))
    stride = int((keys[1] - keys[0]).flatten()[0])
    for first, second in (keys, values):
        if not torch.equal(second - first, torch.full_like(first, stride)):
            raise FusionRefused("the attention backend does not lay out its KV blocks at a constant stride")
    base = _PROBED_BLOCK * stride
    return PagedLayout(BlockLayout(keys[0] - base, stride), BlockLayout(values[0] - base, stride))


def _offsets(layer: Attention, shape: tuple[int, int, int], block: int, which: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the flat offset of each element of K (`which` 0) or V (1) of one block."""
    cache = layer.kv_cache
    count = shape[0] * shape[1] * shape[2]
    index = torch.arange(count, device=cache.device)
    slots = torch.arange(shape[0], device=cache.device) + block * shape[0]
    found: torch.Tensor | None = None
    decoded = torch.zeros(count, dtype=torch.int64, device=cache.device)
    weight = 1
    while weight < count:
        written = (index // weight % _RADIX + 1).to(dtype).view(shape)
        other = torch.zeros_like(written)
        cache.zero_()
        pair = (other, written) if which else (written, other)
        layer.impl.do_kv_cache_update(layer, *pair, cache, slots)
        flat = flat_view(cache)
        if found is None:
            found = flat.nonzero().flatten()
            if found.numel() != count:
                raise FusionRefused(f"the KV cache holds {found.numel()} elements of the {count} written to one block")
        decoded += (flat[found].to(torch.int64) - 1) * weight
        weight *= _RADIX
    cache.zero_()
    assert found is not None
    if not torch.equal(decoded.sort().values, index):
        raise FusionRefused("the KV cache does not give back what was written (a quantised KV cache?)")
    offsets = torch.empty_like(found)
    offsets[decoded] = found
    return offsets.view(shape)
