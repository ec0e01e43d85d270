"""Recompute the tokens that the question attends to most, over the fused cache as loaded."""

from typing import ClassVar

from fuse.policies.base import Evidence
from fuse.policies.budget import SharePolicy, spend
from fuse.runs import Run


class QueryPolicy(SharePolicy):
    """Ranks by attention."""

    query_aware: ClassVar[bool] = True

    def select(self, evidence: Evidence) -> list[Run]:
        return spend(evidence.attention(), evidence, self.share)
