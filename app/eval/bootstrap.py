"""Confidence intervals by resampling questions (Efron and Tibshirani 1993); seeded, so that a summary is repeatable."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
_SEED = 20261129


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % percentile interval over `n` questions."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0: meant for differences."""
        return self.low > 0 or self.high < 0


def bootstrap(values: Sequence[float], resamples: int = RESAMPLES) -> Interval:
    """Return the mean of `values` with its interval. Raises ValueError when there are none."""
    if not values:
        raise ValueError("no value to take a mean of")
    sample = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(_SEED).integers(len(sample), size=(resamples, len(sample)))
    low, high = np.percentile(sample[draws].mean(axis=1), [2.5, 97.5])
    return Interval(float(sample.mean()), float(low), float(high), len(sample))


def paired_difference(ours: Sequence[float], theirs: Sequence[float], resamples: int = RESAMPLES) -> Interval:
    """Return the mean of `ours - theirs`, question by question. Raises ValueError on unequal lengths."""
    return bootstrap([a - b for a, b in zip(ours, theirs, strict=True)], resamples)
