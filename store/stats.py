"""Snapshots of what a store holds and did."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class MissReason(Enum):
    """Why a chunk was not served; every miss is counted under one."""

    ABSENT = "absent"
    STALE = "stale"
    TRUNCATED = "truncated"
    BAD_HEADER = "bad_header"
    UNSUPPORTED = "unsupported"
    CORRUPT = "corrupt"
    IO_ERROR = "io_error"


@dataclass(frozen=True, slots=True)
class TierStats:
    """One tier: what all processes hold there, by the index, and this process's hits."""

    chunks: int
    bytes: int
    capacity_bytes: int
    hits: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What all processes hold, each chunk once, and what its hits have brought since the index was begun."""

    chunks: int
    raw_bytes: int
    hits: int
    seconds_saved: float


@dataclass(frozen=True, slots=True)
class TierEstimate:
    """Loading from one tier against computing; the newest of all processes, as far as they have shared it.

    `load_tokens_per_s` is what one thread reads and decodes, None while nobody has measured it; `worth_loading` is what
    follows for a chunk that is not too small to judge; `loaded` and `computed` count the chunks decided either way.
    """

    load_tokens_per_s: float | None
    prefill_tokens_per_s: float
    worth_loading: bool
    loaded: int
    computed: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Whole store. `misses` by `MissReason` value; bytes, seconds and counters are this process's since it started.

    `encode_seconds` and `decode_seconds` are summed over threads' elapsed time; `break_even` sets loading from each
    tier against computing, as all processes know it; `pins` are all that hold now. `counters` has promotions,
    demotions, evictions, discards, refusals, recovered temporary files, errors of tiers and index, the byte coder's own
    calls.
    """

    tiers: Mapping[str, TierStats]
    misses: Mapping[str, int]
    raw_bytes: int
    stored_bytes: int
    decoded_bytes: int
    encode_seconds: float
    decode_seconds: float
    backend: str
    backend_reason: str
    counters: Mapping[str, int]
    break_even: Mapping[str, TierEstimate]
    pins: int

    @property
    def saved(self) -> float:
        """Share of the raw bytes written that compression saved, headers counted; 0.0 before the first write."""
        return 1 - self.stored_bytes / self.raw_bytes if self.raw_bytes else 0.0
