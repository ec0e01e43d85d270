"""The model inside the worker: its attention layers, its rotary table, its paged cache, and an extra forward pass."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import torch
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import CommonAttentionMetadata

from fuse.connector.compat import attention_layers, rotary_table
from fuse.connector.passes import MOST_SEQUENCES, OutsidePasses
from fuse.connector.probe import probe_layout
from fuse.connector.ranks import Ranks
from fuse.connector.staging import staging_for
from fuse.connector.turning import probe_rotation
from fuse.paging import slot_mapping
from fuse.runs import Run, batches
from fuse.work import PrefillWork
from store.chunk import Bits, KVDType, KVLayout

_DTYPES = {torch.bfloat16: KVDType.BF16, torch.float16: KVDType.FP16, torch.float32: KVDType.FP32}

_Inputs = tuple[torch.Tensor, ...]
"""Query, key and value of one layer, each `[tokens, heads * head_dim]`."""


class _LayerReached(Exception):
    """Ends a forward pass at the layer that was asked for."""


class PagedModel:
    """The worker's model and paged cache. Used only on the worker's own thread.

    Creating one overwrites the cache, so it is done before the first request.

    kv_layout: of the whole model, as chunks have it; heads: the KV heads of this rank, which is what its cache holds.

    Raises:
        FusionRefused: (constructor) the model's attention or cache cannot be fused.
    """

    def __init__(self, runner: Any) -> None:
        config = runner.vllm_config
        self.device: torch.device = runner.device
        self.staging = staging_for(self.device)
        self.layers: dict[str, Attention] = attention_layers(runner)
        self.rotary = rotary_table(runner.model)
        first = next(iter(self.layers.values()))
        self.dtype: torch.dtype = config.model_config.dtype
        self.block_size: int = config.cache_config.block_size
        self.ranks = Ranks.of(config, first.num_kv_heads)
        self.heads = self.ranks.heads
        self.kv_layout = KVLayout(len(self.layers), self.ranks.kv_heads, first.head_size, _DTYPES[self.dtype])
        self.paged = probe_layout(first, self.block_size, first.num_kv_heads, first.head_size, self.dtype)
        self._passes = OutsidePasses(runner)
        probe_rotation(runner, self._passes, self.layers, self.rotary, self.paged)
        self.work = PrefillWork.of_config(config.model_config.hf_text_config.to_dict())
        self._batch_limit: int = config.scheduler_config.max_num_batched_tokens

    def slots(self, block_ids: Sequence[int], positions: torch.Tensor) -> torch.Tensor:
        table = torch.tensor(block_ids, device=self.device)
        return slot_mapping(table, positions.to(self.device), self.block_size)

    def write(self, layer: Attention, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        """Write K and V `[tokens, kv_heads, head_dim]` of one layer into their slots, as the backend itself does."""
        layer.impl.do_kv_cache_update(layer, keys, values, layer.kv_cache, slots)
        self.staging.used(keys)
        self.staging.used(values)

    def bits(self, tensor: torch.Tensor) -> Bits:
        """View a host tensor as the unsigned integers that the store moves."""
        width = torch.uint32 if self.dtype == torch.float32 else torch.uint16
        bits: Bits = tensor.view(width).numpy()
        return bits

    def before_layers(self, first: int, call: Callable[[int], None]) -> AbstractContextManager[None]:
        """Let passes `call` each layer's index, from `first` on, before it attends and before it is looked at."""

        def reached(index: int, inputs: _Inputs) -> None:
            call(index)

        names = list(self.layers)
        return self._hooked({names[index]: partial(reached, index) for index in range(first, len(names))})

    def recompute(self, runs: Sequence[Run], token_ids: Sequence[int], block_ids: Sequence[int]) -> None:
        """Recompute the tokens of `runs` (sorted, disjoint) in place, each attending to all positions before it.

        Every run is handed to the model as a sequence of its own, and all of them share the request's block table: at
        each layer their fresh K/V are written first, then every token attends to what is there, stale or fresh.
        """
        for batch in self._batches(runs):
            self._forward(batch, token_ids, block_ids)

    def queries(
        self,
        layers: Sequence[str],
        runs: Sequence[Run],
        tail: Run,
        token_ids: Sequence[int],
        block_ids: Sequence[int],
    ) -> dict[str, torch.Tensor]:
        """Recompute `runs`, the last of which is `tail`; return the tail's queries in `layers` (in forward order).

        Queries are taken after RoPE, `[tail, heads, head_dim]`. The tail alone is computed no further than it is
        watched, as it will be computed again: up to the layer behind, where its keys in the last one have been written.
        """
        seen: dict[str, list[torch.Tensor]] = {name: [] for name in layers}
        behind = self._layer_behind(layers[-1]) if list(runs) == [tail] else None

        def see(name: str, query: torch.Tensor, value: torch.Tensor) -> None:
            if name == behind:
                raise _LayerReached
            seen[name].append(query.clone())

        with self._watching([*layers, *([behind] if behind else [])], see):
            self.recompute(runs, token_ids, block_ids)  # in several batches if need be
        tokens, size = tail[1] - tail[0], self.kv_layout.head_dim
        return {name: torch.cat(queries)[-tokens:].view(tokens, -1, size) for name, queries in seen.items()}

    def values(
        self, layer: str, runs: Sequence[Run], token_ids: Sequence[int], block_ids: Sequence[int]
    ) -> torch.Tensor:
        """Compute the tokens of `runs` up to `layer` only; return their V there, `[tokens, kv_heads, head_dim]`."""
        seen: list[torch.Tensor] = []

        def stop(name: str, query: torch.Tensor, value: torch.Tensor) -> None:
            seen.append(value.clone())
            raise _LayerReached

        with self._watching([layer], stop):
            self.recompute(runs, token_ids, block_ids)
        return torch.cat(seen).view(-1, len(self.heads), self.kv_layout.head_dim)

    def _layer_behind(self, layer: str) -> str | None:
        names = list(self.layers)
        return next(iter(names[names.index(layer) + 1 :]), None)

    def _watching(
        self, layers: Sequence[str], see: Callable[[str, torch.Tensor, torch.Tensor], None]
    ) -> AbstractContextManager[None]:
        """Call `see(layer, query, value)` whenever one of `layers` is about to attend."""

        def look(name: str, inputs: _Inputs) -> None:
            see(name, inputs[0], inputs[2])

        return self._hooked({name: partial(look, name) for name in layers})

    def _ending_with(self, slots: torch.Tensor) -> AbstractContextManager[None]:
        """End a pass over the tokens of `slots` with the last layer's K/V: nobody asks what comes of them."""
        name, last = list(self.layers.items())[-1]

        def write(inputs: _Inputs) -> None:
            keys, values = (tensor.view(len(slots), -1, self.kv_layout.head_dim) for tensor in inputs[1:3])
            self.write(last, keys, values, slots)
            raise _LayerReached

        return self._hooked({name: write})

    @contextmanager
    def _hooked(self, hooks: Mapping[str, Callable[[_Inputs], None]]) -> Iterator[None]:
        """Call a layer's hook whenever it is about to attend; hooks of an enclosing block are called first."""
        handles = [
            self.layers[name].register_forward_pre_hook(lambda _, inputs, hook=hook: hook(inputs))
            for name, hook in hooks.items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _batches(self, runs: Sequence[Run]) -> Iterator[list[Run]]:
        return batches(runs, self._batch_limit, MOST_SEQUENCES)

    def _forward(self, runs: Sequence[Run], token_ids: Sequence[int], block_ids: Sequence[int]) -> None:
        positions = torch.cat([torch.arange(start, end) for start, end in runs])
        slots = self.slots(block_ids, positions)
        common = self._attention_metadata(runs, positions.to(self.device), slots, block_ids)
        ids = torch.tensor([token_ids[position] for position in positions.tolist()], dtype=torch.int32)
        with suppress(_LayerReached), self._ending_with(slots):
            self._passes.run(common, ids.to(self.device), positions.to(self.device))

    def _attention_metadata(
        self, runs: Sequence[Run], positions: torch.Tensor, slots: torch.Tensor, block_ids: Sequence[int]
    ) -> CommonAttentionMetadata:
        lengths = torch.tensor([end - start for start, end in runs], dtype=torch.int32)
        starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        ends = torch.tensor([end for _, end in runs], dtype=torch.int32)
        table = torch.tensor(block_ids, dtype=torch.int32, device=self.device)
        return CommonAttentionMetadata(
            query_start_loc=starts.to(self.device),
            query_start_loc_cpu=starts,
            seq_lens=ends.to(self.device),
            seq_lens_cpu_upper_bound=ends,
            num_reqs=len(runs),
            num_actual_tokens=len(positions),
            max_query_len=int(lengths.max()),
            max_seq_len=int(ends.max()),
            block_table_tensor=table.repeat(len(runs), 1),
            slot_mapping=slots,
            causal=True,
            positions=positions,
        )
