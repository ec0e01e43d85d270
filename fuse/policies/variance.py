"""Recompute the tokens whose KV depends most on context, as measured at ingest. No cost at question time."""

from fuse.policies.base import Evidence
from fuse.policies.budget import SharePolicy, spend
from fuse.runs import Run


class VariancePolicy(SharePolicy):
    """Chunks without a stored variance get none of the budget."""

    def select(self, evidence: Evidence) -> list[Run]:
        return spend(evidence.variance().nan_to_num(0.0), evidence, self.share)
