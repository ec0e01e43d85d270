"""What policies may look at and what ingest scores, worked out by transformers from the stored chunks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from fuse.plan import FusePlan, Span
from fuse.policies import make_policy
from fuse.rope import RotaryTable
from fuse.runs import Run
from store.keys import ChunkKey
from store.tiered import TieredStore
from tests.e2e.tiny import Asked, Tiny


async def choose(tiny: Tiny, asked: Asked) -> list[Run]:
    """Return the runs that the policy of `asked` chooses on the oracle's evidence."""
    plan = tiny.plan(asked)
    assert plan is not None
    with TieredStore(tiny.store) as store:
        chunks = {span: _read(store, span.key, plan.fingerprint) for span in plan.spans() if span.key is not None}
    present = {span: chunk for span, chunk in chunks.items() if chunk is not None}
    with torch.inference_mode():
        return make_policy(plan.policy).select(Oracle(_model(tiny), tiny.rotary, plan, tiny.prompt(asked), present))


async def scores(tiny: Tiny, text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a passage's stored scores, and the oracle's: relative change of K and V between its two contexts."""
    scheme, passage, model = tiny.language.scheme, tiny.tokens(text), _model(tiny)
    with torch.inference_mode():
        always, before = scheme.generic
        kept, other = (
            _kv(model, [*scheme.head, *context, *passage])[:, :, -len(passage) :]
            for context in ((*always, *before), always)
        )
        _turn(tiny.rotary, other, len(before))
        expected = ((kept - other).flatten(3).norm(dim=3) / kept.flatten(3).norm(dim=3)).sum((0, 1))
    with TieredStore(tiny.store) as store:
        chunk = _read(store, tiny.key(text), tiny.language.fingerprint)
    assert chunk is not None
    return chunk.scores, expected


@dataclass(frozen=True)
class _Chunk:
    """A stored chunk: K and V `[layers, 2, tokens, kv_heads, head_dim]` from `base_position` on."""

    kv: torch.Tensor
    base_position: int
    scores: torch.Tensor


@dataclass(frozen=True)
class Oracle:
    """Implements `fuse.policies.Evidence` over `chunks`; other passages are computed in their place."""

    model: Any
    rotary: RotaryTable
    plan: FusePlan
    prompt: Sequence[int]
    chunks: dict[Span, _Chunk]

    def loaded(self) -> list[Run]:
        return [(span.start, span.end) for span in self.chunks]

    def following(self) -> list[Run]:
        return []

    def work(self) -> torch.Tensor:
        """Multiply-adds, counted in the model's own weights."""
        layers, config = self.model.model.layers, self.model.config
        weights = sum(weight.numel() for weight in layers.parameters() if weight.ndim == 2)
        each = 2 * len(layers) * config.num_attention_heads * layers[0].self_attn.head_dim
        return weights + each * (torch.arange(self.plan.context_tokens).double() + 1)

    def variance(self) -> torch.Tensor:
        return self._scatter(lambda span, chunk: chunk.scores)

    def deviation(self) -> torch.Tensor:
        fresh = _kv(self.model, self.prompt)[1, 1]
        change = self._scatter(lambda span, chunk: (fresh[span.start : span.end] - chunk.kv[1, 1]).square().sum((1, 2)))
        return change.nan_to_num(0.0)

    def attention(self) -> torch.Tensor:
        context, cache = self.plan.context_tokens, self._fused()
        tail = torch.tensor([self.prompt[context:]])
        attentions = self.model(tail, past_key_values=cache, output_attentions=True).attentions
        read, watched = torch.zeros(context), math.ceil(2 / 3 * len(attentions))
        for (weights,), layer in zip(attentions[:watched], cache.layers, strict=False):  # `[heads, tail, tokens]`
            norms = layer.values[0].norm(dim=2).repeat_interleave(len(weights) // layer.values.shape[1], 0)
            read += (weights * norms[:, None]).amax(0).mean(0)[:context]
        return read

    def _fused(self) -> DynamicCache:
        cache = DynamicCache()
        for span in self.plan.spans():
            if (chunk := self.chunks.get(span)) is None:
                self.model(torch.tensor([self.prompt[span.start : span.end]]), past_key_values=cache)
                continue
            kv = chunk.kv.clone()
            _turn(self.rotary, kv, span.start - chunk.base_position)
            for layer, (keys, values) in enumerate(kv.transpose(2, 3)):
                cache.update(keys[None], values[None], layer)
        return cache

    def _scatter(self, score: Callable[[Span, _Chunk], torch.Tensor]) -> torch.Tensor:
        scores = torch.full((self.plan.context_tokens,), torch.nan)
        for span, chunk in self.chunks.items():
            scores[span.start : span.end] = score(span, chunk)
        return scores


def _model(tiny: Tiny) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny.folder, dtype=torch.float32, attn_implementation="eager")


def _kv(model: Any, token_ids: Sequence[int]) -> torch.Tensor:
    """Return K and V of an ordinary prefill, `[layers, 2, tokens, kv_heads, head_dim]`."""
    cache = model(torch.tensor([token_ids]), use_cache=True).past_key_values
    return torch.stack([torch.cat([layer.keys, layer.values]) for layer in cache.layers]).transpose(2, 3)


def _turn(rotary: RotaryTable, kv: torch.Tensor, shift: int) -> None:
    rotation = rotary.rotation(torch.full((kv.shape[2],), shift))
    for layer in kv:
        rotation.apply(layer[0])


def _read(store: TieredStore, key: ChunkKey, fingerprint: str) -> _Chunk | None:
    reader = store.open(key, fingerprint)
    if reader is None:
        return None
    with reader:
        stored = reader.scores()
        assert stored is not None
        kv = torch.from_numpy(reader.read().copy()).view(torch.float32).transpose(2, 3)
        return _Chunk(kv, reader.info.base_position, torch.from_numpy(stored.copy()).float())
