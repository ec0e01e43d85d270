"""How much of an ordinary prefill's arithmetic a request still did."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PrefillCost:
    """Multiply-adds of a decoder-only model: `linear` for each token, `attention` for each pair of positions."""

    linear: float
    attention: float

    @classmethod
    def of_model(cls, folder: Path) -> "PrefillCost":
        """Read the sizes in `config.json`: projections and a gated feed-forward layer, embeddings left out."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
        head_dim = config.get("head_dim") or hidden // heads
        kv_heads = config.get("num_key_value_heads") or heads
        projections = 2 * hidden * head_dim * (heads + kv_heads)
        return cls(layers * (projections + 3 * hidden * config["intermediate_size"]), layers * 2 * heads * head_dim)

    def share(self, prompt_tokens: int, computed: int, tail: int) -> float:
        """Share of the whole prompt's prefill when `computed` tokens were computed, the last `tail` of them at its end.

        The other computed tokens stand anywhere before: they are taken to attend to half of what precedes the tail.
        """
        context = prompt_tokens - tail
        scattered = (computed - tail) * (self.linear + self.attention * context / 2)
        return (scattered + self._run(context, prompt_tokens)) / self._run(0, prompt_tokens)

    def _run(self, start: int, end: int) -> float:
        pairs = (end * (end + 1) - start * (start + 1)) / 2
        return (end - start) * self.linear + pairs * self.attention
