"""Recompute policies: which positions each chooses."""

import pytest

from fuse.errors import PlanError
from fuse.plan import FusePlan, PolicySpec, Segment
from fuse.policies import POLICIES, make_policy
from fuse.runs import Run
from store.keys import ChunkKey

KEY = ChunkKey("a" * 64)


def select(name: str, **options: float) -> list[Run]:
    plan = FusePlan(
        "f" * 64, (Segment(10), Segment(50, KEY), Segment(8, KEY), Segment(40, KEY)), PolicySpec(name, options)
    )
    return make_policy(plan.policy).select(plan)


def test_boundary_takes_the_start_of_every_passage_and_no_more_than_it_has() -> None:
    assert select("boundary", tokens=16) == [(10, 26), (60, 84)]


def test_boundary_defaults_to_32_tokens() -> None:
    assert select("boundary") == [(10, 42), (60, 100)]


def test_none_and_full() -> None:
    assert select("none") == []
    assert select("full") == [(0, 108)]


@pytest.mark.parametrize(
    "spec",
    [
        PolicySpec("guess"),
        PolicySpec("boundary", {"tokens": -1}),
        PolicySpec("boundary", {"share": 0.1}),
        PolicySpec("none", {"tokens": 1}),
    ],
)
def test_unknown_names_and_options_are_refused(spec: PolicySpec) -> None:
    with pytest.raises(PlanError) as refused:
        make_policy(spec)
    assert spec.name in str(refused.value) or "boundary" in str(refused.value)


def test_an_unknown_name_lists_the_supported_ones() -> None:
    with pytest.raises(PlanError, match=", ".join(POLICIES)):
        make_policy(PolicySpec("guess"))
