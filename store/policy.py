"""Which chunk leaves a full tier first: the one of the lowest priority, which is set whenever a chunk is used."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Use:
    """A use of a chunk in a tier.

    `now` in seconds since the epoch; `clock` is the highest priority that has left the tier so far; `hits` counts how
    often the chunk was served, this use included; `saved_s` are the prefill seconds that one hit saves; `bytes` is the
    size of the file.
    """

    now: float
    clock: float
    hits: int
    saved_s: float
    bytes: int


Policy = Callable[[Use], float]


def lru(use: Use) -> float:
    """Least recently used first."""
    return use.now


def gdsf(use: Use) -> float:
    """Greedy-Dual-Size-Frequency (Cherkasova 1998): what saves the fewest prefill seconds per megabyte goes first.

    The clock ages: what was once popular and is used no more falls behind what came after it.
    """
    return use.clock + (1 + use.hits) * use.saved_s / max(1, use.bytes) * 1e6


_POLICIES: dict[str, Policy] = {"lru": lru, "gdsf": gdsf}


def policy_names() -> tuple[str, ...]:
    """Names of all policies."""
    return tuple(_POLICIES)


def make_policy(name: str) -> Policy:
    """The policy `name`. Raises ValueError when there is none."""
    if name not in _POLICIES:
        raise ValueError(f"eviction policy {name!r}: expected one of {', '.join(_POLICIES)}")
    return _POLICIES[name]
