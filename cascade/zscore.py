"""Scores of different kinds made comparable."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def z_scores(scores: Sequence[float]) -> NDArray[np.float64]:
    """How many standard deviations each score is from their mean; zeros where all are equal."""
    values = np.asarray(scores, dtype=np.float64)
    deviation = values.std() if len(values) else 0.0
    if deviation < 1e-9:
        return np.zeros_like(values)
    standard: NDArray[np.float64] = (values - values.mean()) / deviation
    return standard
