"""The store: chunks in memory, on disk and in a remote store, behind one set of verbs."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from store.chunk import ChunkInfo, KVChunk
from store.codec import Codecs, chain_for
from store.config import StoreConfig
from store.control import Control
from store.errors import StoreFull
from store.estimates import Estimates
from store.index import Index, Sighting
from store.keys import ChunkKey
from store.marks import Marks
from store.placement import Placement
from store.policy import make_policy
from store.qatzip import open_deflate
from store.reader import ChunkReader
from store.shelf import BAD_FILE, Shelf
from store.speed import SMALLEST, BreakEven
from store.stats import MissReason, StoreStats, TierStats
from store.tally import Tally
from store.tier import LookupResult, Tier
from store.tiers.stack import open_tiers
from store.transfers import Every, Transfers
from store.writer import EncodedChunk, encode_chunk

_FETCH_THREADS = 8
_TRANSFER_THREADS = 2


@dataclass(frozen=True, slots=True)
class PutResult:
    """Outcome of `put`: sizes of the chunk as K and V and as a file; `created` is False for a duplicate."""

    raw_bytes: int
    stored_bytes: int
    created: bool


class TieredStore:
    """Chunks by key, the fastest tier first; thread-safe, shared with other processes by its files.

    Every put writes to disk as well as to memory, so that losing tmpfs (reboot, a new container) loses nothing, and
    demoting from memory costs no write. Nothing is flushed to the medium: a power cut may take, or tear, what was put
    in its last half minute, and since every byte is under a checksum that is a counted miss (7 MB: 2 ms, flushed 5 ms
    and the device's pace for everyone). A chunk found only in a slower tier is promoted, in the background, when used.
    Nothing here raises because of a bad file, medium or index: a chunk that cannot be served is a counted miss, and a
    bad file goes away. `control` has the verbs of operators. `wrap` adds behaviour to each tier, next to its medium.
    """

    def __init__(self, config: StoreConfig, wrap: Callable[[Tier], Tier] = lambda tier: tier) -> None:
        self._config = config
        self._counters, self._hits, self._misses, self._io = Tally(), Tally(), Tally(), Tally()
        self._fetches = ThreadPoolExecutor(_FETCH_THREADS, "kvfuse-fetch")
        self._transfers = Transfers(_TRANSFER_THREADS, self._counters)
        self._tiers = open_tiers(config, wrap, self._counters, self._fetches)
        self._index = Index(config.disk_dir, make_policy(config.policy), self._counters)
        marks = Marks(self._index.database)
        watermarks = (config.low_watermark, config.high_watermark)
        self._placement = Placement(self._tiers, self._index, self._transfers, self._counters, watermarks)
        self._deflate = open_deflate(config.backend)
        self._codecs = Codecs(self._deflate)
        self._estimates = Estimates(self._index)
        self._shelf = Shelf(self._codecs, self._decoded)
        self._encoders = ThreadPoolExecutor(config.threads, "kvfuse-encode") if config.threads > 1 else None
        idle = {"memory": config.memory_idle_s, "disk": config.disk_idle_s}
        self.control = Control(self._placement, marks, self._shelf, self._transfers, self._estimates.saved_s, idle)
        self._counters.add("recovered_temporaries", sum(tier.recover() for tier in self._tiers))
        self._transfers.start("sweep", self.sweep)
        self._sweeper = Every(config.sweep_s, self.sweep)

    def contains_many(self, keys: Iterable[ChunkKey]) -> list[bool]:
        """Whether each key has a file in some tier; nothing is read and no miss is counted."""
        keys = list(keys)
        found = {key for key in keys if any(self._placement.has(tier, key) for tier in self._tiers[:2])}
        for tier in self._tiers[2:]:
            rest = [key for key in keys if key not in found]
            far = self._fetches.map(partial(self._placement.has, tier), rest)
            found |= {key for key, there in zip(rest, far, strict=True) if there}
        return [key in found for key in keys]

    def lookup(self, key: ChunkKey) -> LookupResult:
        """The fastest tier that has a file of `key`."""
        for tier in self._tiers:
            if self._placement.has(tier, key):
                return LookupResult(tier.name)
        return LookupResult.MISS

    def open(self, key: ChunkKey, fingerprint: str) -> ChunkReader | None:
        """A reader of the chunk, or None for a miss, which is counted under its `MissReason`.

        A file that cannot be `key`'s chunk is removed. A chunk of another fingerprint stays: it is somebody else's.
        """
        reason = MissReason.ABSENT
        for tier in self._tiers:
            found = self._open_in(tier, key, fingerprint)
            if isinstance(found, ChunkReader):
                self._after_hit(tier, found)
                return found
            reason = found if found is not MissReason.ABSENT else reason
        self._misses.add(reason.value)
        return None

    def discard(self, key: ChunkKey, reason: str) -> None:
        """Remove a chunk whose content proved bad while reading; counted as a miss for `reason`."""
        self._misses.add(reason)
        self._counters.add("discards")
        self._placement.delete(key)

    def put(self, chunk: KVChunk) -> PutResult:
        """Encode and write a chunk to disk and to memory; a tier that cannot take it is counted and left out.

        A readable chunk of the same key and fingerprint makes this a duplicate: nothing is encoded, at most a missing
        disk copy is written.
        Raises StoreFull when no tier can take it.
        """
        present = self._present(chunk)
        if present is not None:
            return PutResult(chunk.raw_bytes, present, created=False)
        chain = chain_for(self._config.codec, chunk.layout.dtype)
        started = time.perf_counter()
        encoded = encode_chunk(chunk, chain, self._codecs.get(chain, chunk.layout.dtype), self._encoders)
        self._io.add("encode_seconds", time.perf_counter() - started)
        self._place(chunk.info(chain), encoded)
        self._io.add("raw_bytes", encoded.raw_bytes)
        self._io.add("stored_bytes", encoded.stored_bytes)
        return PutResult(encoded.raw_bytes, encoded.stored_bytes, created=True)

    def delete(self, key: ChunkKey) -> bool:
        """Remove a chunk from every tier, pinned or not, with all that is known of it; True when some tier had it."""
        removed = self._placement.delete(key)
        self._index.forget([key])
        return removed

    def tell_prefill_speed(self, tokens_per_s: float) -> None:
        """Say how fast the engine computes a prompt; what a hit saves is reckoned by it, in every process."""
        self._estimates.tell_prefill(tokens_per_s)

    def saved_s(self, tokens: int) -> float:
        """Prefill seconds that `tokens` tokens cost the engine."""
        return self._estimates.saved_s(tokens)

    def worth_loading(self, tokens: int, tier: str, prefill_tokens_per_s: float | None = None) -> BreakEven:
        """Whether loading a chunk of `tokens` tokens from `tier` is faster than computing it, with both estimates.

        The loading speed is this process's own, of one thread; the prefill speed the one told last unless given. The
        decision is counted.
        """
        return self._estimates.decide(tokens, tier, prefill_tokens_per_s)

    def sweep(self) -> None:
        """Carry out due appointments and sink idle chunks.

        Every process does so by itself, in the background, when it opens the store and then every `sweep_s` seconds.
        """
        self._index.flush()
        self._estimates.share()
        self._heal_index()
        self.control.sweep()

    def settle(self) -> None:
        """Wait for what runs in the background, and bring the index up to date."""
        self._transfers.settle()
        self._index.flush()
        self._estimates.share()

    def stats(self) -> StoreStats:
        """Snapshot; reads totals of the index, not the tiers."""
        io = self._io.snapshot()
        counters = self._counters.snapshot() | self._deflate.counters.snapshot()
        totals = self._index.totals()
        return StoreStats(
            tiers={tier.name: self._tier_stats(tier, *totals.get(tier.name, (0, 0))) for tier in self._tiers},
            misses=_whole(self._misses.snapshot()),
            raw_bytes=int(io.get("raw_bytes", 0)),
            stored_bytes=int(io.get("stored_bytes", 0)),
            decoded_bytes=int(io.get("decoded_bytes", 0)),
            encode_seconds=io.get("encode_seconds", 0.0),
            decode_seconds=io.get("decode_seconds", 0.0),
            backend=self._deflate.backend,
            backend_reason=self._deflate.reason,
            counters=_whole(counters),
            break_even=self._estimates.of_tiers(tier.name for tier in self._tiers),
            pins=self.control.pins(),
        )

    def close(self) -> None:
        """End the threads; open readers of local files stay usable."""
        self._sweeper.close()
        self._transfers.close()
        for pool in (self._encoders, self._fetches):
            if pool is not None:
                pool.shutdown(cancel_futures=True)
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _heal_index(self) -> None:
        if self._index.database.take_fresh():
            self._transfers.start("rebuild", self.control.rebuild_index)

    def _open_in(self, tier: Tier, key: ChunkKey, fingerprint: str) -> ChunkReader | MissReason:
        found = self._shelf.open(tier, key, fingerprint)
        if found in BAD_FILE:
            self._placement.remove(tier, key)
        return found

    def _after_hit(self, tier: Tier, reader: ChunkReader) -> None:
        key, tokens = reader.info.key, reader.info.tokens
        self._hits.add(tier.name)
        self._counters.add(f"{tier.name}_read_bytes", reader.stored_bytes)
        if tier is not self._tiers[0]:
            self._transfers.start(("promote", key), lambda: self._placement.promote(key))
        self._touch(key)
        saved, gained = self.saved_s(tokens), self._estimates.gained_s(tokens, tier.name)
        use = Sighting(reader.info, tier.name, reader.stored_bytes, saved, time.time(), 1, gained)
        if self._index.note(use):
            self._transfers.start("flush", self._index.flush)

    def _touch(self, key: ChunkKey) -> None:
        """Mark every local copy as used, lest a slower tier takes the hottest chunks for its coldest."""
        for tier in self._tiers:
            tier.touch(key)

    def _present(self, chunk: KVChunk) -> int | None:
        """Stored bytes of the readable duplicate of `chunk`, or None."""
        for tier in self._tiers:
            found = self._open_in(tier, chunk.key, chunk.fingerprint)
            if isinstance(found, ChunkReader) and _same(found.info, chunk):
                self._touch(chunk.key)
                self._make_durable(chunk.key, tier)
                return found.stored_bytes
        return None

    def _make_durable(self, key: ChunkKey, holder: Tier) -> None:
        disk = self._tiers[1]
        if holder is self._tiers[0] and not self._placement.has(disk, key):
            self._placement.copy(key, holder, disk)

    def _place(self, info: ChunkInfo, encoded: EncodedChunk) -> None:
        """Write to memory and disk, or where neither takes it to a remote tier.

        What a refusing tier holds of the key goes, because it was not readable.
        """
        size, written = encoded.stored_bytes, 0
        for tier in (*self._tiers[1::-1], *self._tiers[2:]):
            if tier in self._tiers[2:] and written:
                break
            sighting = Sighting(info, tier.name, size, self.saved_s(info.tokens), time.time())
            if self._placement.write(tier, info.key, encoded.parts, size, partial(self._index.see, sighting)):
                written += 1
            else:
                self._counters.add(f"{tier.name}_refusals")
                self._placement.remove(tier, info.key)
        if not written:
            self._counters.add("refusals")
            raise StoreFull(f"chunk {info.key}: {size} bytes fit in no tier")

    def _decoded(self, tier: str, reader: ChunkReader, decoded_bytes: int, seconds: float) -> None:
        self._io.add("decode_seconds", seconds)
        self._io.add("decoded_bytes", decoded_bytes)
        if reader.info.tokens >= SMALLEST:
            self._estimates.observe(tier, reader.info.tokens / reader.info.layout.layers, seconds)

    def _tier_stats(self, tier: Tier, chunks: int, size: int) -> TierStats:
        return TierStats(chunks, size, tier.capacity_bytes, int(self._hits[tier.name]))


def _same(info: ChunkInfo, chunk: KVChunk) -> bool:
    return info.layout == chunk.layout and info.tokens == chunk.tokens


def _whole(counts: dict[str, float]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items()}
