"""The KV store: chunks compressed without loss, in tiers, with every uncertain case a counted miss."""

from store.chunk import ChunkInfo, KVChunk, KVDType, KVLayout
from store.config import StoreConfig
from store.deflate import Backend
from store.errors import CorruptChunk, StoreError, StoreFull
from store.keys import ChunkKey, ModelFingerprint, chunk_key, parse_chunk_key
from store.reader import ChunkReader
from store.stats import MissReason, StoreStats, TierStats
from store.tier import LookupResult
from store.tiered import PutResult, TieredStore
from store.warm import warm_up

__all__ = [
    "Backend",
    "ChunkInfo",
    "ChunkKey",
    "ChunkReader",
    "CorruptChunk",
    "KVChunk",
    "KVDType",
    "KVLayout",
    "LookupResult",
    "MissReason",
    "ModelFingerprint",
    "PutResult",
    "StoreConfig",
    "StoreError",
    "StoreFull",
    "StoreStats",
    "TierStats",
    "TieredStore",
    "chunk_key",
    "parse_chunk_key",
    "warm_up",
]
