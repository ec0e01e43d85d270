"""Runs: half-open ranges of prompt positions, kept sorted and disjoint."""

from collections.abc import Iterable, Iterator

Run = tuple[int, int]
"""`(start, end)`: the positions `start <= p < end`."""


def merge_runs(runs: Iterable[Run], gap: int = 0) -> list[Run]:
    """Return the union of `runs` in position order; runs at most `gap` positions apart become one."""
    merged: list[Run] = []
    for start, end in sorted(run for run in runs if run[0] < run[1]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def clip_runs(runs: Iterable[Run], start: int, end: int) -> list[Run]:
    """Return the parts of `runs` inside `[start, end)`."""
    clipped = ((max(a, start), min(b, end)) for a, b in runs)
    return [(a, b) for a, b in clipped if a < b]


def count_positions(runs: Iterable[Run]) -> int:
    """Count the positions of `runs` (disjoint)."""
    return sum(end - start for start, end in runs)


def batches(runs: Iterable[Run], limit: int, most_runs: int) -> Iterator[list[Run]]:
    """Cut `runs` into batches of at most `limit` positions and `most_runs` runs each, in position order.

    Order matters: a later batch attends to the K/V that an earlier one has rewritten.
    """
    batch: list[Run] = []
    room = limit
    for start, end in runs:
        while start < end:
            stop = min(end, start + room)
            batch.append((start, stop))
            room -= stop - start
            start = stop
            if room == 0 or len(batch) == most_runs:
                yield batch
                batch, room = [], limit
    if batch:
        yield batch
