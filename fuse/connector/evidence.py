"""Evidence for recompute policies, gathered from one loaded request on the worker."""

from collections.abc import Sequence
from functools import cached_property

import torch

from fuse.connector.loader import Load
from fuse.connector.model import PagedModel
from fuse.plan import FusePlan
from fuse.runs import Run

_ATTENTION_LAYERS = 6
"""Evenly spaced layers select as well as all of them; early ones alone do not (measured on two models)."""


class LoadedEvidence:
    """Implements `fuse.policies.Evidence` for one request whose load has ended.

    Chunks are shown whole, also where vLLM's prefix cache holds their start: what is chosen must not depend on it.

    computed: whether what the load could not give has been computed along the way.
    """

    def __init__(self, model: PagedModel, load: Load, token_ids: Sequence[int], block_ids: Sequence[int]) -> None:
        self._model = model
        self._load = load
        self._token_ids = token_ids
        self._block_ids = block_ids
        self.computed = False

    @property
    def plan(self) -> FusePlan:
        return self._load.job.plan

    @cached_property
    def _context(self) -> int:
        return self.plan.context_tokens

    def loaded(self) -> list[Run]:
        return [(source.span.start, source.span.end) for source in self._load.usable()]

    def following(self) -> list[Run]:
        return [
            (source.span.start, source.span.end)
            for source in self._load.usable()
            if source.reader.info.predecessor and source.reader.info.predecessor == source.span.before
        ]

    def variance(self) -> torch.Tensor:
        scores = torch.full((self._context,), torch.nan)
        for source in self._load.usable():
            if (stored := source.scores) is not None:
                scores[source.span.start : source.span.end] = torch.from_numpy(stored).to(torch.float32)
        return scores

    def attention(self) -> torch.Tensor:
        """Run the tail over the loaded cache, together with what has to be computed anyway, and watch its queries."""
        names = list(self._model.layers)
        step = max(1, len(names) // _ATTENTION_LAYERS)
        watched = names[step // 2 :: step][:_ATTENTION_LAYERS]
        tail = (self._context, min(len(self._token_ids), len(self._block_ids) * self._model.block_size))
        queries = self._model.queries(watched, [*self._load.missing(), tail], tail, self._token_ids, self._block_ids)
        self.computed = True
        total = torch.zeros(self._context, device=self._model.device)
        reader = self._model.paged.reader(self._block_ids, 0, self._context)
        for name, query in queries.items():
            layer = self._model.layers[name]
            total += _mean_attention(query, reader.read_keys(layer.kv_cache), layer.impl.scale)
        return (total / len(watched)).cpu()

    def deviation(self) -> torch.Tensor:
        start = self._load.job.start
        name = list(self._model.layers)[1]
        reader = self._model.paged.reader(self._block_ids, start, self._context)
        stale = reader.read_values(self._model.layers[name].kv_cache)
        fresh = self._model.values(name, [(start, self._context)], self._token_ids, self._block_ids)
        change = torch.zeros(self._context)
        change[start:] = (fresh.float() - stale.float()).square().sum((1, 2)).cpu()
        return self._model.ranks.mean(change)


def _mean_attention(queries: torch.Tensor, keys: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the mean attention of `queries` `[tail, heads, head_dim]` to `keys` `[context, kv_heads, head_dim]`.

    In float32, over the context only, averaged over tokens and heads: `[context]`.
    """
    grouped = queries.float().view(len(queries), keys.shape[1], -1, keys.shape[2])
    logits = torch.einsum("tkgd,nkd->kgtn", grouped, keys.float()) * scale
    return logits.softmax(-1).mean((0, 1, 2))
