"""Threads beside the model's: they leave OpenMP and the starter's cores to it."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import torch

from fuse.connector.threads import core_by_turn, stand_aside

TERMS = 1_000_000
"""Enough for torch to share a sum among OpenMP's threads."""


def run(setup: Callable[[], None], work: Callable[[], Any], threads: int = 1) -> list[Any]:
    """Let each of so many new threads do the work once."""
    together = Barrier(threads)

    def waiting() -> Any:
        together.wait()
        return work()

    with ThreadPoolExecutor(threads, initializer=setup) as pool:
        return [future.result() for future in [pool.submit(waiting) for _ in range(threads)]]


def team() -> int:
    torch.ones(TERMS).sum()
    return torch.get_num_threads()


def cores() -> set[int]:
    return os.sched_getaffinity(0)


def test_a_helper_computes_alone_and_its_starter_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(before)  # from now on torch gives every new thread as many
    assert run(lambda: None, team) == [before]
    assert run(stand_aside, team) == [1]
    assert torch.get_num_threads() == before


def test_a_helper_has_every_core_though_its_starter_is_pinned() -> None:
    every = cores()

    def pinned() -> list[set[int]]:
        os.sched_setaffinity(0, {min(every)})
        return run(stand_aside, cores)

    assert run(lambda: None, pinned) == [[every]]


def test_helpers_of_a_pinned_starter_share_the_cores_out_from_its_own() -> None:
    every = sorted(cores())
    first = every[-1]

    def pinned() -> list[set[int]]:
        os.sched_setaffinity(0, {first})
        return run(core_by_turn(), cores, threads=len(every))

    (found,) = run(lambda: None, pinned)
    assert sorted(found, key=min) == [{core} for core in every]


def test_helpers_of_a_free_starter_are_left_to_the_kernel() -> None:
    assert run(core_by_turn(), cores) == [cores()]
