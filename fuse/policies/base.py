"""RecomputePolicy: which tokens of a plan are recomputed after its chunks have been loaded."""

from typing import Protocol

from fuse.plan import FusePlan
from fuse.runs import Run


class RecomputePolicy(Protocol):
    """Chooses tokens to recompute over the loaded KV.

    Called on the worker, once per request, after every chunk that could be loaded is in the paged cache. Segments
    without usable KV are recomputed whole by the caller, whatever the policy returns.
    """

    def select(self, plan: FusePlan) -> list[Run]:
        """Return runs of context positions, sorted and disjoint."""
        ...
