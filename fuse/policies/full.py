"""Recompute everything: equal to an ordinary prefill, and so the self-check of the whole path."""

from dataclasses import dataclass
from typing import ClassVar

from fuse.policies.base import Evidence
from fuse.runs import Run


@dataclass(frozen=True)
class FullPolicy:
    """Selects the whole context."""

    query_aware: ClassVar[bool] = False

    def select(self, evidence: Evidence) -> list[Run]:
        return [(0, evidence.plan.context_tokens)]
