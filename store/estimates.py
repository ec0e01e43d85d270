"""Break-even in the open: loading against computing for each tier, decided, counted, and shared by all processes."""

from collections.abc import Iterable

from store.index import Index
from store.speed import BreakEven, LoadSpeed
from store.stats import TierEstimate
from store.tally import Tally

DEFAULT_PREFILL_TOKENS_PER_S = 1000.0
_PREFILL, _LOAD, _LOADED, _COMPUTED = "prefill_tokens_per_s", "load_tokens_per_s", "loaded", "computed"


class Estimates:
    """Decides by this process's own measurements; the index's facts tell everybody of them."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._speed = LoadSpeed()
        self._decided = Tally()
        self._prefill = index.facts().get(_PREFILL, DEFAULT_PREFILL_TOKENS_PER_S)
        self.observe = self._speed.observe

    def tell_prefill(self, tokens_per_s: float) -> None:
        """Say how fast the engine computes a prompt."""
        self._prefill = tokens_per_s
        self._index.set_facts({_PREFILL: tokens_per_s})

    def saved_s(self, tokens: int) -> float:
        """Prefill seconds that `tokens` tokens cost the engine."""
        return tokens / self._prefill

    def gained_s(self, tokens: int, tier: str) -> float:
        """What a hit in `tier` saves, loading deducted."""
        return max(0.0, self.saved_s(tokens) - (self._speed.compare(tokens, tier, self._prefill).load_s or 0.0))

    def decide(self, tokens: int, tier: str, prefill_tokens_per_s: float | None = None) -> BreakEven:
        """Compare, and count the decision. Raises as `LoadSpeed.compare` does."""
        estimate = self._speed.compare(tokens, tier, prefill_tokens_per_s or self._prefill)
        self._decided.add(f"{_LOADED if estimate.worth_loading else _COMPUTED}:{tier}")
        return estimate

    def share(self) -> None:
        """Tell the others what was measured and decided since the last time, and hear of their prefill speed."""
        self._index.set_facts({f"{_LOAD}:{tier}": speed for tier, speed in self._speed.snapshot().items()})
        self._index.add_to_facts(self._decided.take())
        self._prefill = self._index.facts().get(_PREFILL, self._prefill)

    def of_tiers(self, tiers: Iterable[str]) -> dict[str, TierEstimate]:
        """The state of every tier."""
        facts, own, fresh = self._index.facts(), self._decided.snapshot(), self._speed.snapshot()
        prefill = facts.get(_PREFILL, self._prefill)

        def count(name: str) -> int:
            return int(facts.get(name, 0) + own.get(name, 0))

        def estimate(tier: str) -> TierEstimate:
            speed = fresh.get(tier, facts.get(f"{_LOAD}:{tier}"))
            worth = speed is None or speed > prefill
            return TierEstimate(speed, prefill, worth, count(f"{_LOADED}:{tier}"), count(f"{_COMPUTED}:{tier}"))

        return {tier: estimate(tier) for tier in tiers}
