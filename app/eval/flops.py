"""How much of an ordinary prefill's arithmetic a request still did."""

import json
from dataclasses import dataclass
from pathlib import Path

from fuse.work import PrefillWork


@dataclass(frozen=True)
class PrefillCost:
    """Shares of an ordinary prefill's work."""

    work: PrefillWork

    @classmethod
    def of_model(cls, folder: Path) -> "PrefillCost":
        """Read the sizes in the folder's `config.json`."""
        return cls(PrefillWork.of_config(json.loads((folder / "config.json").read_text(encoding="utf-8"))))

    def share(self, prompt_tokens: int, computed: int, tail: int) -> float:
        """Share of the whole prompt's prefill when `computed` tokens were computed, the last `tail` of them at its end.

        The other computed tokens stand anywhere before: they are taken to attend to half of what precedes the tail.
        """
        context = prompt_tokens - tail
        scattered = (computed - tail) * (self.work.linear + self.work.attention * context / 2)
        return (scattered + self._run(context, prompt_tokens)) / self._run(0, prompt_tokens)

    def _run(self, start: int, end: int) -> float:
        pairs = (end * (end + 1) - start * (start + 1)) / 2
        return (end - start) * self.work.linear + pairs * self.work.attention
