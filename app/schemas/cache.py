"""The cache's objects in the API: chunks, documents, tiers, and what a verb came to."""

import math
from dataclasses import asdict
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from app.cache import DocumentUsage, Options, Target
from store.control import Outcome, VerbResult
from store.index import ChunkRecord
from store.stats import Contents, StoreStats

TierName = Literal["memory", "disk", "remote"]
Verb = Literal["pin", "unpin", "promote", "demote", "prefetch", "evict", "verify", "tag", "untag"]
Seconds = Annotated[float, Field(ge=0, le=10 * 366 * 86400, allow_inf_nan=False)]
Names = Annotated[list[Annotated[str, Field(max_length=255)]], Field(max_length=10_000)]


class TargetBody(BaseModel):
    """The chunks to act on: of documents, named by key, or of tags."""

    model_config = ConfigDict(extra="forbid")

    documents: Names = []
    keys: Names = []
    tags: Names = []

    def target(self) -> Target:
        """As the cache takes it."""
        return Target(tuple(self.documents), tuple(self.keys), tuple(self.tags))


class VerbBody(TargetBody):
    """A verb's target and options; a verb ignores the options it has no use for."""

    tier: TierName | None = Field(None, description="Tier to move to (promote, demote) or to empty (evict).")
    ttl_s: Seconds | None = Field(None, description="How long a pin or a promotion holds, in seconds.")
    after_s: Seconds = Field(0.0, description="Seconds to wait before promote, demote or evict.")
    tag: str | None = Field(None, max_length=200, description="Name of the group (tag, untag).")
    dry_run: bool = Field(False, description="Tell what would be done, change nothing.")

    def options(self) -> Options:
        """As the cache takes them."""
        return Options(self.tier, self.ttl_s, self.after_s, self.tag or "", self.dry_run)


class VerbReport(BaseModel):
    """What a verb came to, or would come to; `bytes` are those of the chunks done."""

    object: Literal["cache.result"] = "cache.result"
    verb: str
    dry_run: bool
    bytes: int
    counts: dict[str, int]
    outcomes: dict[str, str]

    @classmethod
    def of(cls, result: VerbResult) -> Self:
        """The API's view of a result."""
        outcomes = {str(key): outcome.value for key, outcome in result.outcomes.items()}
        counts = {value: list(outcomes.values()).count(value) for value in dict.fromkeys(outcomes.values())}
        return cls(verb=result.verb, dry_run=result.dry_run, bytes=result.bytes, counts=counts, outcomes=outcomes)


class ChunkObject(BaseModel):
    """One chunk. Times are seconds since the epoch; `pinned` with `pinned_until` null means for good."""

    key: str
    object: Literal["cache.chunk"] = "cache.chunk"
    tokens: int
    codec: str
    raw_bytes: int
    tiers: dict[str, int]
    created_at: float
    last_used: float
    hits: int
    seconds_saved: float
    pinned: bool
    pinned_until: float | None
    tags: list[str]

    @classmethod
    def of(cls, record: ChunkRecord) -> Self:
        """The API's view of a chunk."""
        until = record.pinned_until
        return cls(
            key=record.key,
            tokens=record.tokens,
            codec=record.codec,
            raw_bytes=record.raw_bytes,
            tiers=record.places,
            created_at=record.created,
            last_used=record.last_used,
            hits=record.hits,
            seconds_saved=record.seconds_saved,
            pinned=until is not None,
            pinned_until=until if until is not None and math.isfinite(until) else None,
            tags=list(record.tags),
        )


class ChunkList(BaseModel):
    """Chunks in order of their keys; go on from behind the last one while `has_more`."""

    object: Literal["list"] = "list"
    data: list[ChunkObject]
    has_more: bool


class DocumentObject(BaseModel):
    """What a document's K/V costs and brings; see `app.cache.DocumentUsage`."""

    id: str
    object: Literal["cache.document"] = "cache.document"
    filename: str
    passages: int
    stored: int
    tiers: dict[str, int]
    raw_bytes: int
    stored_bytes: int
    last_used: float | None
    hits: int
    seconds_saved: float
    pinned: int

    @classmethod
    def of(cls, usage: DocumentUsage) -> Self:
        """The API's view of a document."""
        return cls.model_validate(usage, from_attributes=True)


class DocumentList(BaseModel):
    """Every document, in order of arrival."""

    object: Literal["list"] = "list"
    data: list[DocumentObject]


class TierObject(BaseModel):
    """How full a tier is."""

    chunks: int
    bytes: int
    capacity_bytes: int
    hits: int


class BreakEvenObject(BaseModel):
    """Loading from a tier against computing, and how often either was chosen; see `store.stats.TierEstimate`."""

    load_tokens_per_s: float | None
    prefill_tokens_per_s: float
    worth_loading: bool
    loaded: int
    computed: int


class ContentsObject(BaseModel):
    """All stored chunks, each once, and what their hits have brought."""

    chunks: int
    raw_bytes: int
    hits: int
    seconds_saved: float


class CacheObject(BaseModel):
    """The whole store; `misses`, `counters` and the tiers' `hits` are those of the process that tells."""

    object: Literal["cache"] = "cache"
    contents: ContentsObject
    tiers: dict[str, TierObject]
    break_even: dict[str, BreakEvenObject]
    pins: int
    misses: dict[str, int]
    backend: str
    backend_reason: str
    counters: dict[str, int]

    @classmethod
    def of(cls, stats: StoreStats, contents: Contents) -> Self:
        """The API's view of a snapshot."""
        return cls.model_validate({**asdict(stats), "contents": asdict(contents)})


class LookupReport(BaseModel):
    """The fastest tier that has each chunk, or "miss"."""

    object: Literal["cache.lookup"] = "cache.lookup"
    tiers: dict[str, str]


class VerifyReport(BaseModel):
    """What verifying the whole store came to; `corrupt` names the chunks of which a bad copy was found."""

    object: Literal["cache.verified"] = "cache.verified"
    dry_run: bool
    chunks: int = 0
    counts: dict[str, int] = {}
    corrupt: list[str] = []

    def add(self, result: VerbResult) -> None:
        """Count in what some of the chunks came to."""
        for key, outcome in result.outcomes.items():
            self.chunks += 1
            self.counts[outcome.value] = self.counts.get(outcome.value, 0) + 1
            if outcome is Outcome.CORRUPT:
                self.corrupt.append(key)


class CountReport(BaseModel):
    """How many chunks or files an upkeep verb dealt with."""

    object: Literal["cache.count"] = "cache.count"
    count: int
