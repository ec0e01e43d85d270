"""Recompute the tokens that the question reads from and whose KV depends on context: attention times variance.

First of all the start of every passage, whose keys depend most on what is in front of them.
"""

from typing import ClassVar

import torch

from fuse.policies.base import Evidence
from fuse.policies.budget import SharePolicy, spend
from fuse.runs import Run

_START = 4
_START_UNSCORED = 16


class HybridPolicy(SharePolicy):
    """A chunk without a stored variance gets more of its first tokens and what the query asks."""

    query_aware: ClassVar[bool] = True

    def select(self, evidence: Evidence) -> list[Run]:
        variance = evidence.variance()
        usual = variance.nanmean().nan_to_num(1.0)
        scores = evidence.attention() * variance.where(~variance.isnan(), usual)
        return spend(scores, evidence, self.share, self._starts(evidence, variance))

    def _starts(self, evidence: Evidence, variance: torch.Tensor) -> list[Run]:
        """Return the first tokens of each passage, at most half of its share; a nearly exact one has no need."""
        exact = evidence.following()
        starts = []
        for start, end in (run for run in evidence.loaded() if run not in exact):
            wanted = _START_UNSCORED if variance[start:end].isnan().any() else _START
            starts.append((start, start + min(wanted, int(self.share * (end - start) / 2))))
        return starts
