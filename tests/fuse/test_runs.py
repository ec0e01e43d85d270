"""Runs: union, clipping and batching keep exactly the positions they were given."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fuse.runs import Run, batches, clip_runs, count_positions, merge_runs

runs_lists = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)))


def positions(runs: list[Run]) -> list[int]:
    return [position for start, end in runs for position in range(start, end)]


@given(runs_lists)
def test_merged_runs_are_the_sorted_disjoint_union(runs: list[Run]) -> None:
    merged = merge_runs(runs)
    assert positions(merged) == sorted(set(positions(runs)))
    assert all(a[1] < b[0] for a, b in pairwise(merged))


def test_a_gap_joins_near_neighbours_only() -> None:
    assert merge_runs([(0, 2), (4, 6), (9, 10)], gap=2) == [(0, 6), (9, 10)]


@given(runs_lists, st.integers(0, 60), st.integers(0, 60))
def test_clipping_keeps_the_positions_inside(runs: list[Run], start: int, end: int) -> None:
    merged = merge_runs(runs)
    inside = [position for position in positions(merged) if start <= position < end]
    assert positions(clip_runs(merged, start, end)) == inside
    assert count_positions(clip_runs(merged, start, end)) == len(inside)


@given(runs_lists, st.integers(1, 20), st.integers(1, 5))
def test_batches_keep_order_and_limits(runs: list[Run], limit: int, most_runs: int) -> None:
    merged = merge_runs(runs)
    cut = list(batches(merged, limit, most_runs))
    assert [position for batch in cut for position in positions(batch)] == positions(merged)
    assert all(0 < len(positions(batch)) <= limit and len(batch) <= most_runs for batch in cut)
