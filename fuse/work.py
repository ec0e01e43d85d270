"""PrefillWork: what computing a token takes, in multiply-adds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class PrefillWork:
    """Of a decoder-only model: `linear` for each token, `attention` for each position that it attends to."""

    linear: float
    attention: float

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "PrefillWork":
        """Read the sizes in a model's `config.json`: projections and a gated feed-forward layer, embeddings left out.

        An estimate for models of another shape. Where there are no such sizes, a token takes the same everywhere.
        """
        sizes = {name: value for name, value in config.items() if value}
        hidden, layers, heads = (_first(sizes, names) for names in (_HIDDEN, _LAYERS, _HEADS))
        if not (hidden and layers and heads):
            return cls(1, 0)
        head_dim = sizes.get("head_dim", hidden // heads)
        inner = _first(sizes, _INNER) or 4 * hidden
        projections = 2 * hidden * head_dim * (heads + sizes.get("num_key_value_heads", heads))
        feed_forward = 3 * hidden * inner * sizes.get("num_experts_per_tok", 1)
        return cls(layers * (projections + feed_forward), layers * 2 * heads * head_dim)

    def of_positions(self, positions: torch.Tensor) -> torch.Tensor:
        """Return what the token at each position takes, float64; it attends to those before it and to itself."""
        return self.linear + self.attention * (positions.double() + 1)


_HIDDEN = ("hidden_size", "n_embd")
_LAYERS = ("num_hidden_layers", "n_layer")
_HEADS = ("num_attention_heads", "n_head")
_INNER = ("moe_intermediate_size", "intermediate_size", "n_inner", "ffn_dim")


def _first(sizes: Mapping[str, Any], names: Sequence[str]) -> int:
    """Return the first size that is stated, else 0."""
    return next((int(sizes[name]) for name in names if name in sizes), 0)
