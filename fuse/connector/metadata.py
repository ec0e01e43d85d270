"""What the two halves of the connector tell each other: once at the start, then in every engine step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorHandshakeMetadata, KVConnectorMetadata

from fuse.plan import FusePlan, SaveOrder


@dataclass(frozen=True)
class Verdict(KVConnectorHandshakeMetadata):
    """Worker to scheduler, at the start: whether this rank's model can be fused, and why not."""

    fusable: bool
    reason: str = ""


@dataclass(frozen=True)
class SaveJob:
    """Store the KV of a finished request; its blocks stay allocated until the worker says so."""

    request_id: str
    order: SaveOrder
    block_ids: Sequence[int]
    tag: str


@dataclass(frozen=True)
class LoadJob:
    """Load the plan's chunks into the paged cache, from position `start` on (earlier ones are cached already).

    salt: names the fused context in vLLM's prefix cache.
    """

    request_id: str
    plan: FusePlan
    block_ids: Sequence[int]
    start: int
    tag: str
    salt: str


@dataclass(frozen=True)
class RecomputeJob:
    """Recompute the chosen tokens of a loaded request; runs before the forward pass that computes its tail."""

    request_id: str
    token_ids: Sequence[int]
    block_ids: Sequence[int]


@dataclass
class FuseMetadata(KVConnectorMetadata):
    """Scheduler to worker. `idle`: the step computes no token, so the worker may wait for loads."""

    saves: list[SaveJob] = field(default_factory=list)
    loads: list[LoadJob] = field(default_factory=list)
    recomputes: list[RecomputeJob] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    idle: bool = False


@dataclass(frozen=True)
class FuseReport:
    """What fusing one request took. Tokens of the context only; seconds of wall time on the worker.

    `load_s` runs from the load's start to its last byte in the paged cache: reading, decoding and re-rotation in
    threads, overlapped with other requests, and `write_s` of it on the worker's own thread. `decode_s` and `rotate_s`
    are what the loading threads spent on reading and decoding and on re-rotating, summed over threads. `select_s` is
    the policy's choice, with the pass over the tail that a query-aware one makes. Where a recompute began before its
    load had ended, `select_s` and `recompute_s` count what it waited for. `declined_chunks` were faster to compute than
    to load.
    """

    reused: int
    recomputed: int
    computed: int
    cached: int
    missed_chunks: int
    declined_chunks: int
    load_s: float
    decode_s: float
    rotate_s: float
    write_s: float
    select_s: float
    recompute_s: float
