"""Recompute nothing: every loaded chunk is used as it is. For measuring; never good enough to serve."""

from dataclasses import dataclass
from typing import ClassVar

from fuse.policies.base import Evidence
from fuse.runs import Run


@dataclass(frozen=True)
class NonePolicy:
    """Selects no token."""

    query_aware: ClassVar[bool] = False

    def select(self, evidence: Evidence) -> list[Run]:
        return []
