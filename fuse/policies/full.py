"""Recompute everything: equal to an ordinary prefill, and so the self-check of the whole path."""

from dataclasses import dataclass

from fuse.plan import FusePlan
from fuse.runs import Run


@dataclass(frozen=True)
class FullPolicy:
    """Selects the whole context."""

    def select(self, plan: FusePlan) -> list[Run]:
        return [(0, plan.context_tokens)]
