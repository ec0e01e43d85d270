"""Timing of calls that take milliseconds."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
Call = Callable[[], object]

AT_LEAST, AT_MOST = 3, 40
SECONDS = 1.0


def repeated(call: Call, clock: Clock = time.process_time, seconds: float = SECONDS) -> list[float]:
    """Time a call again and again for about `seconds` seconds; by default CPU time over all threads."""
    (times,) = in_turns(call, clock=clock, seconds=seconds)
    return times


def in_turns(*calls: Call, clock: Clock = time.process_time, seconds: float = SECONDS) -> list[list[float]]:
    """Time several calls in turns, so that what else the machine does slows all of them alike; one list a call."""
    times: list[list[float]] = [[] for _ in calls]
    until = time.monotonic() + seconds * len(calls)
    while len(times[0]) < AT_LEAST or (len(times[0]) < AT_MOST and time.monotonic() < until):
        for call, taken in zip(calls, times, strict=True):
            started = clock()
            call()
            taken.append(clock() - started)
    return times
