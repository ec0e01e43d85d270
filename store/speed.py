"""Is loading a chunk faster than computing it again? Measured speeds of loading, and the comparison."""

import threading
import time
from dataclasses import dataclass

WEIGHT = 0.2
"""Share of the newest measurement in the moving average."""

SMALLEST = 128
"""Tokens of the smallest chunk that is judged or measured: in smaller ones the fixed cost of a read hides the speed."""

OUTLIER = 4.0
"""How much slower than the average one measurement may count: a stall is not a slow tier, a run of stalls is."""

FORGET_SECONDS = 600.0
"""Age at which a measured speed no longer counts: a tier that was judged too slow gets another try."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The two estimates for one load and what follows. `load_s` is None while the tier's speed is not known."""

    tokens: int
    tier: str
    load_s: float | None
    prefill_s: float

    @property
    def worth_loading(self) -> bool:
        """Whether to load; a tier of unknown speed is tried."""
        return self.load_s is None or self.load_s < self.prefill_s


class LoadSpeed:
    """Tokens per second that one thread reads and decodes from each tier, as a moving average."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._speeds: dict[str, tuple[float, float]] = {}

    def observe(self, tier: str, tokens: float, seconds: float) -> None:
        """Take in one measurement; a layer of a chunk counts as its share of the chunk's tokens."""
        if seconds <= 0:
            return
        with self._lock:
            speed, _ = self._speeds.get(tier, (tokens / seconds, 0.0))
            # Averaged as seconds per token, so that the mean is the time a mixture of loads takes.
            measured = min(seconds / tokens, OUTLIER / speed)
            mean = 1 / ((1 - WEIGHT) / speed + WEIGHT * measured)
            self._speeds[tier] = mean, time.monotonic()

    def tokens_per_s(self, tier: str) -> float | None:
        """Speed of a tier, None while it is not known."""
        with self._lock:
            speed, measured = self._speeds.get(tier, (0.0, 0.0))
        return speed if speed and time.monotonic() - measured < FORGET_SECONDS else None

    def compare(self, tokens: int, tier: str, prefill_tokens_per_s: float) -> BreakEven:
        """Loading `tokens` tokens from `tier` against computing them. Raises ValueError on a speed of 0 or less."""
        if prefill_tokens_per_s <= 0:
            raise ValueError(f"prefill speed {prefill_tokens_per_s}: expected more than 0 tokens per second")
        speed = self.tokens_per_s(tier) if tokens >= SMALLEST else None
        return BreakEven(tokens, tier, tokens / speed if speed else None, tokens / prefill_tokens_per_s)

    def snapshot(self) -> dict[str, float]:
        """Known speeds by tier, in tokens per second."""
        with self._lock:
            names = list(self._speeds)
        return {name: speed for name in names if (speed := self.tokens_per_s(name)) is not None}
