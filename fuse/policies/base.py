"""RecomputePolicy: which tokens of a plan are recomputed after its chunks have been loaded."""

from typing import ClassVar, Protocol

import torch

from fuse.plan import FusePlan
from fuse.runs import Run


class Evidence(Protocol):
    """What a policy may look at, over the loaded context of one request.

    Scores are float32 `[context]` on the host, one per position. A policy asks only for what it needs: some of it costs
    a forward pass, and its time counts in time to first token.
    """

    @property
    def plan(self) -> FusePlan: ...

    def loaded(self) -> list[Run]:
        """Return one run per chunk that was loaded whole: the only tokens worth a budget."""
        ...

    def following(self) -> list[Run]:
        """Return those of `loaded` that stand behind the passage they were computed behind: nearly exact."""
        ...

    def work(self) -> torch.Tensor:
        """Return what an ordinary prefill spends on each token, in any unit, float64. Free."""
        ...

    def variance(self) -> torch.Tensor:
        """Return each token's stored variance between two contexts, NaN where its chunk has none. Free."""
        ...

    def attention(self) -> torch.Tensor:
        """Return how much the tail reads from each token: attention times V. Costs a forward pass over the tail."""
        ...

    def deviation(self) -> torch.Tensor:
        """Return how much each token's V of the second layer changes when recomputed. Costs a layer's prefill."""
        ...


class RecomputePolicy(Protocol):
    """Chooses tokens to recompute over the loaded KV.

    query_aware: whether the choice depends on the tail, so that its fused KV is another question's only by leave.

    Called on the worker, once per request, after every chunk that could be loaded is in the paged cache. Segments
    without usable KV are recomputed whole by the caller, whatever the policy returns.
    """

    query_aware: ClassVar[bool]

    def select(self, evidence: Evidence) -> list[Run]:
        """Return runs of context positions, sorted and disjoint."""
        ...
