"""FusePlan: where the KV of every context token of one prompt comes from.

A plan travels to the engine as plain JSON inside `kv_transfer_params`, under the key `kvfuse`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from blake3 import blake3

from fuse.errors import PlanError
from store.keys import ChunkKey, parse_chunk_key

PARAMS_KEY = "kvfuse"


@dataclass(frozen=True)
class Segment:
    """One run of prompt tokens; `key` names the chunk that holds its KV, `None` when it has to be computed."""

    tokens: int
    key: ChunkKey | None = None


@dataclass(frozen=True)
class Span:
    """A segment at its place in the prompt: positions `start <= p < end`; `before` is the key of the one in front."""

    start: int
    end: int
    key: ChunkKey | None
    before: ChunkKey | None = None


@dataclass(frozen=True)
class PolicySpec:
    """A recompute policy by name, with its numbers (tokens, shares)."""

    name: str
    options: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FusePlan:
    """The segments of one prompt's context, in order, and how to choose the tokens to recompute.

    The prompt is longer than the context: its tail is left to the engine.

    answered: the last so many tokens of the prompt are an answer begun elsewhere, which no policy takes for a part of
    the question: the context is fused as it was for the answer's beginning.
    """

    fingerprint: str
    segments: tuple[Segment, ...]
    policy: PolicySpec
    answered: int = 0

    def __post_init__(self) -> None:
        if self.answered < 0:
            raise PlanError(f"an answer of {self.answered} tokens has been begun")
        if not self.segments or any(segment.tokens < 1 for segment in self.segments):
            raise PlanError("a plan needs segments of at least one token each")

    @property
    def context_tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    def spans(self) -> Iterator[Span]:
        start, before = 0, None
        for segment in self.segments:
            yield Span(start, start + segment.tokens, segment.key, before)
            start, before = start + segment.tokens, segment.key

    def to_params(self, tag: str = "") -> dict[str, Any]:
        """Return the JSON form for `kv_transfer_params`; the worker files its report under `tag`."""
        return {
            PARAMS_KEY: {
                "op": "fuse",
                "tag": tag,
                "fingerprint": self.fingerprint,
                "segments": [[segment.tokens, segment.key] for segment in self.segments],
                "policy": {"name": self.policy.name, **self.policy.options},
                "answered": self.answered,
            }
        }

    def cache_salt(self, secret: str, depends_on: Sequence[int]) -> str:
        """Return the prefix-cache salt of this plan.

        Fused KV is approximate, so blocks may be shared only by requests with the same plan, the same `secret` (one
        tenant's) and the same tokens that the fused KV depends on: the context's, and for a policy that looks at the
        question all of the prompt's.
        """
        digest = blake3(key=blake3(secret.encode()).digest())
        digest.update(repr((self.to_params(), tuple(depends_on))).encode())
        return f"{PARAMS_KEY}-{digest.hexdigest()}"


class SaveStage(Enum):
    """Which of a passage's passes a save is: the only one, or the first or second of two."""

    ONLY = "only"
    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True)
class SaveOrder:
    """Ask the engine to store the KV of prompt positions `start <= p < end` when the request ends.

    predecessor: key of the passage in front, if it is the real one of the document.
    """

    key: ChunkKey
    fingerprint: str
    start: int
    end: int
    predecessor: str = ""
    stage: SaveStage = SaveStage.ONLY

    def to_params(self, tag: str = "") -> dict[str, Any]:
        """Return the JSON form for `kv_transfer_params`; the worker files its result under `tag`."""
        return {
            PARAMS_KEY: {
                "op": "save",
                "tag": tag,
                "key": self.key,
                "fingerprint": self.fingerprint,
                "start": self.start,
                "end": self.end,
                "predecessor": self.predecessor,
                "stage": self.stage.value,
            }
        }


def tag_of(params: Mapping[str, Any] | None) -> str:
    """Return the tag that the requester gave its plan or save, "" if none."""
    ours = (params or {}).get(PARAMS_KEY) or {}
    return str(ours.get("tag", ""))


def parse_params(params: Mapping[str, Any] | None) -> FusePlan | SaveOrder | None:
    """Read what `to_params` wrote; `None` when the request carries nothing of ours.

    Raises:
        PlanError: the parameters are ours but malformed.
    """
    ours = (params or {}).get(PARAMS_KEY)
    if ours is None:
        return None
    try:
        op: Literal["fuse", "save"] = ours["op"]
        if op == "fuse":
            return _parse_plan(ours)
        if op == "save":
            return _parse_save(ours)
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"malformed {PARAMS_KEY} parameters: {error!r}") from error
    raise PlanError(f"unknown {PARAMS_KEY} operation {op!r}: expected 'fuse' or 'save'")


def _parse_plan(ours: Mapping[str, Any]) -> FusePlan:
    policy = dict(ours["policy"])
    name = str(policy.pop("name"))
    segments = tuple(
        Segment(int(tokens), parse_chunk_key(key) if key is not None else None) for tokens, key in ours["segments"]
    )
    options = {option: float(value) for option, value in policy.items()}
    return FusePlan(str(ours["fingerprint"]), segments, PolicySpec(name, options), int(ours.get("answered", 0)))


def _parse_save(ours: Mapping[str, Any]) -> SaveOrder:
    order = SaveOrder(
        parse_chunk_key(ours["key"]),
        str(ours["fingerprint"]),
        int(ours["start"]),
        int(ours["end"]),
        str(ours.get("predecessor", "")),
        SaveStage(ours.get("stage", SaveStage.ONLY.value)),
    )
    if not 0 <= order.start < order.end:
        raise PlanError(f"save range [{order.start}, {order.end}) is empty or negative")
    return order
