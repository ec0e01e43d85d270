"""Recompute nothing: every loaded chunk is used as it is. For measuring; never good enough to serve."""

from dataclasses import dataclass

from fuse.plan import FusePlan
from fuse.runs import Run


@dataclass(frozen=True)
class NonePolicy:
    """Selects no token."""

    def select(self, plan: FusePlan) -> list[Run]:
        return []
