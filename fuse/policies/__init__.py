"""Recompute policies by name."""

from collections.abc import Callable

from fuse.errors import PlanError
from fuse.plan import PolicySpec
from fuse.policies.base import RecomputePolicy
from fuse.policies.boundary import BoundaryPolicy
from fuse.policies.full import FullPolicy
from fuse.policies.none import NonePolicy

__all__ = ["POLICIES", "RecomputePolicy", "make_policy"]

POLICIES: dict[str, Callable[..., RecomputePolicy]] = {
    "none": NonePolicy,
    "boundary": BoundaryPolicy,
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
