"""The store: chunks in a memory and a disk tier behind one set of verbs."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from store.chunk import ChunkInfo, KVChunk
from store.codec import Codecs, chain_for
from store.config import StoreConfig
from store.errors import CorruptChunk, StoreFull, TruncatedChunk, UnknownCodec, UnsupportedVersion
from store.keys import ChunkKey
from store.qatzip import open_deflate
from store.reader import ChunkReader
from store.room import Room
from store.stats import MissReason, StoreStats, TierStats
from store.tally import Tally
from store.tier import LookupResult, Tier, TierEntry
from store.tiers.directory import DirectoryTier
from store.writer import EncodedChunk, encode_chunk


@dataclass(frozen=True, slots=True)
class PutResult:
    """Outcome of `put`: sizes of the chunk as K and V and as a file; `created` is False for a duplicate."""

    raw_bytes: int
    stored_bytes: int
    created: bool


class TieredStore:
    """Chunks by key, on disk and as fast copies in memory; thread-safe, shared with other processes by its files.

    Every put writes to disk as well as to memory, so that losing tmpfs (reboot, a new container) loses nothing, and
    demoting from memory costs no write. Nothing is flushed to the medium: a power cut may take, or tear, what was put
    in its last half minute, and since every byte is under a checksum that is a counted miss (7 MB: 2 ms, flushed 5 ms
    and the device's pace for everyone). A chunk that only disk has is promoted when used. Nothing here raises because
    of a bad file: such a chunk is a counted miss and its file goes away.
    """

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._memory: Tier = DirectoryTier("memory", config.memory_dir, config.memory_capacity_bytes)
        self._disk: Tier = DirectoryTier("disk", config.disk_dir, config.disk_capacity_bytes)
        self._tiers = (self._memory, self._disk)
        self._rooms = {"memory": Room(self._memory, self._demote), "disk": Room(self._disk, self._evict)}
        self._deflate = open_deflate(config.backend)
        self._codecs = Codecs(self._deflate)
        self._pool = ThreadPoolExecutor(config.threads, "kvfuse-encode") if config.threads > 1 else None
        self._counters, self._hits, self._misses, self._io = Tally(), Tally(), Tally(), Tally()
        self._counters.add("recovered_temporaries", sum(tier.recover() for tier in self._tiers))

    def contains_many(self, keys: Iterable[ChunkKey]) -> list[bool]:
        """Whether each key has a file in some tier; nothing is read and no miss is counted."""
        return [self.lookup(key).hit for key in keys]

    def lookup(self, key: ChunkKey) -> LookupResult:
        """The fastest tier that has a file of `key`."""
        for tier in self._tiers:
            if tier.contains(key):
                return LookupResult(tier.name)
        return LookupResult.MISS

    def open(self, key: ChunkKey, fingerprint: str) -> ChunkReader | None:
        """A reader of the chunk, or None for a miss, which is counted under its `MissReason`.

        A file that cannot be `key`'s chunk is removed. A chunk of another fingerprint stays: it is somebody else's.
        """
        reason = MissReason.ABSENT
        for tier in self._tiers:
            reader, failure = self._open_in(tier, key, fingerprint)
            if reader is not None:
                self._hits.add(tier.name)
                self._after_hit(tier, key)
                return reader
            reason = failure if failure is not MissReason.ABSENT else reason
        self._misses.add(reason.value)
        return None

    def discard(self, key: ChunkKey, reason: str) -> None:
        """Remove a chunk whose content proved bad while reading; counted as a miss for `reason`."""
        self._misses.add(reason)
        self._counters.add("discards")
        self.delete(key)

    def put(self, chunk: KVChunk) -> PutResult:
        """Encode and write a chunk to disk and to memory; a tier that cannot take it is counted and left out.

        A readable chunk of the same key and fingerprint makes this a duplicate: nothing is encoded, at most a missing
        disk copy is written.
        Raises StoreFull when no tier can take it.
        """
        present = self._present(chunk)
        if present is not None:
            self._make_durable(chunk.key)
            return PutResult(chunk.raw_bytes, present, created=False)
        chain = chain_for(self._config.codec, chunk.layout.dtype)
        started = time.perf_counter()
        encoded = encode_chunk(chunk, chain, self._codecs.get(chain, chunk.layout.dtype), self._pool)
        self._io.add("encode_seconds", time.perf_counter() - started)
        self._place(chunk.key, encoded)
        self._io.add("raw_bytes", encoded.raw_bytes)
        self._io.add("stored_bytes", encoded.stored_bytes)
        return PutResult(encoded.raw_bytes, encoded.stored_bytes, created=True)

    def delete(self, key: ChunkKey) -> bool:
        """Remove a chunk from every tier; True when some tier had it."""
        removed = [self._remove(tier, key) for tier in self._tiers]
        return any(removed)

    def stats(self) -> StoreStats:
        """Snapshot; counts the files of both tiers."""
        io = self._io.snapshot()
        counters = self._counters.snapshot() | self._deflate.counters.snapshot()
        return StoreStats(
            tiers={tier.name: self._tier_stats(tier) for tier in self._tiers},
            misses=_whole(self._misses.snapshot()),
            raw_bytes=int(io.get("raw_bytes", 0)),
            stored_bytes=int(io.get("stored_bytes", 0)),
            decoded_bytes=int(io.get("decoded_bytes", 0)),
            encode_seconds=io.get("encode_seconds", 0.0),
            decode_seconds=io.get("decode_seconds", 0.0),
            backend=self._deflate.backend,
            backend_reason=self._deflate.reason,
            counters=_whole(counters),
        )

    def close(self) -> None:
        """End the encoding threads; open readers stay usable."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_in(self, tier: Tier, key: ChunkKey, fingerprint: str) -> tuple[ChunkReader | None, MissReason]:
        try:
            data = tier.open(key)
            if data is None:
                return None, MissReason.ABSENT
            reader = ChunkReader(data, self._codecs, self._decoded)
        except (UnsupportedVersion, UnknownCodec):
            return None, MissReason.UNSUPPORTED
        except CorruptChunk as error:
            self._remove(tier, key)
            return None, MissReason.TRUNCATED if isinstance(error, TruncatedChunk) else MissReason.BAD_HEADER
        except OSError:
            return None, MissReason.IO_ERROR
        if reader.info.key != key:
            self._remove(tier, key)
            return None, MissReason.BAD_HEADER
        return (reader, MissReason.ABSENT) if reader.info.fingerprint == fingerprint else (None, MissReason.STALE)

    def _present(self, chunk: KVChunk) -> int | None:
        """Stored bytes of the readable duplicate of `chunk`, or None."""
        for tier in self._tiers:
            reader, _ = self._open_in(tier, chunk.key, chunk.fingerprint)
            if reader is not None and _same(reader.info, chunk):
                for holder in self._tiers:
                    holder.touch(chunk.key)
                return reader.stored_bytes
        return None

    def _place(self, key: ChunkKey, encoded: EncodedChunk) -> None:
        """Write to every tier, durable ones first; what a refusing tier holds of the key goes: it was not readable."""
        written = 0
        for tier in reversed(self._tiers):
            if self._write(tier, key, encoded.parts, encoded.stored_bytes):
                written += 1
            else:
                self._remove(tier, key)
        if not written:
            self._counters.add("refusals")
            raise StoreFull(f"chunk {key}: {encoded.stored_bytes} bytes fit in no tier")

    def _make_durable(self, key: ChunkKey) -> None:
        if not self._disk.contains(key):
            self._copy(key, self._memory, self._disk)

    def _after_hit(self, tier: Tier, key: ChunkKey) -> None:
        if tier is self._disk and self._promote(key):
            self._counters.add("promotions")
        for holder in self._tiers:
            holder.touch(key)

    def _promote(self, key: ChunkKey) -> bool:
        return self._copy(key, self._disk, self._memory)

    def _demote(self, entry: TierEntry) -> bool:
        """Take a chunk out of memory once disk has it, or drop it when disk refuses it."""
        if not self._disk.contains(entry.key) and not self._copy(entry.key, self._memory, self._disk):
            self._counters.add("evictions")
        else:
            self._counters.add("demotions")
        return self._remove(self._memory, entry.key)

    def _evict(self, entry: TierEntry) -> bool:
        self._counters.add("evictions")
        return self._remove(self._disk, entry.key)

    def _copy(self, key: ChunkKey, source: Tier, target: Tier) -> bool:
        try:
            data = source.open(key)
        except OSError:
            return False
        return data is not None and self._write(target, key, (data.read(0, data.size),), data.size)

    def _write(self, tier: Tier, key: ChunkKey, parts: Sequence[bytes | memoryview], size: int) -> bool:
        try:
            if not self._rooms[tier.name].reserve(size):
                return False
            tier.write(key, parts)
        except OSError:
            self._counters.add(f"{tier.name}_write_errors")
            return False
        return True

    def _remove(self, tier: Tier, key: ChunkKey) -> bool:
        try:
            return tier.delete(key)
        except OSError:
            self._counters.add(f"{tier.name}_delete_errors")
            return False

    def _decoded(self, reader: ChunkReader, decoded_bytes: int, seconds: float) -> None:
        self._io.add("decode_seconds", seconds)
        self._io.add("decoded_bytes", decoded_bytes)

    def _tier_stats(self, tier: Tier) -> TierStats:
        sizes = [entry.bytes for entry in tier.entries()]
        return TierStats(len(sizes), sum(sizes), tier.capacity_bytes, int(self._hits[tier.name]))


def _same(info: ChunkInfo, chunk: KVChunk) -> bool:
    return info.layout == chunk.layout and info.tokens == chunk.tokens


def _whole(counts: dict[str, float]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items()}
