"""Recompute the tokens whose V of the second layer changes most: CacheBlend's rule (arXiv 2405.16444), the baseline."""

from fuse.policies.base import Evidence
from fuse.policies.budget import SharePolicy, spend
from fuse.runs import Run


class DeviationPolicy(SharePolicy):
    """Ranks by change of V."""

    def select(self, evidence: Evidence) -> list[Run]:
        return spend(evidence.deviation(), evidence, self.share)
