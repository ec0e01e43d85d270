"""Recompute policies by name."""

from fuse.errors import PlanError
from fuse.plan import PolicySpec
from fuse.policies.base import Evidence, RecomputePolicy
from fuse.policies.boundary import BoundaryPolicy
from fuse.policies.budget import SharePolicy
from fuse.policies.deviation import DeviationPolicy
from fuse.policies.full import FullPolicy
from fuse.policies.hybrid import HybridPolicy
from fuse.policies.none import NonePolicy
from fuse.policies.query import QueryPolicy
from fuse.policies.variance import VariancePolicy

__all__ = ["POLICIES", "Evidence", "RecomputePolicy", "SharePolicy", "make_policy"]

POLICIES: dict[str, type[RecomputePolicy]] = {
    "none": NonePolicy,
    "boundary": BoundaryPolicy,
    "deviation": DeviationPolicy,
    "variance": VariancePolicy,
    "query": QueryPolicy,
    "hybrid": HybridPolicy,
    "full": FullPolicy,
}


def make_policy(spec: PolicySpec) -> RecomputePolicy:
    """Build the policy that `spec` names.

    Raises:
        PlanError: unknown name or option; the message lists the supported names.
    """
    factory = POLICIES.get(spec.name)
    if factory is None:
        raise PlanError(f"unknown recompute policy {spec.name!r}: supported are {', '.join(POLICIES)}")
    try:
        return factory(**spec.options)
    except TypeError as error:
        raise PlanError(f"recompute policy {spec.name!r}: {error}") from error
