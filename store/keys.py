"""What names a chunk: the model fingerprint and the hash of (fingerprint, tenant salt, token ids)."""

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NewType

import numpy as np
from blake3 import blake3

ChunkKey = NewType("ChunkKey", str)

_HEX64 = re.compile(r"[0-9a-f]{64}")
_KEY_CONTEXT = b"kvfuse chunk key v1"


def is_hash(text: str) -> bool:
    """True for 64 lowercase hex digits, the written form of every hash in this package."""
    return _HEX64.fullmatch(text) is not None


def parse_chunk_key(text: str) -> ChunkKey:
    """Return `text` as a key. Raises ValueError unless it is 64 lowercase hex digits."""
    if not is_hash(text):
        raise ValueError(f"chunk key: expected 64 lowercase hex digits, got {text[:80]!r}")
    return ChunkKey(text)


@dataclass(frozen=True, slots=True)
class ModelFingerprint:
    """Everything that changes the bytes of a chunk; never a served name, a path or a request's prompt.

    `weights` is a hash of the weights in hex, `rope` the canonical JSON of the rotary parameters, `ingest` the
    scheme's name with the hash of the ingest head's token ids.
    """

    weights: str
    dtype: str
    layers: int
    kv_heads: int
    head_dim: int
    rope: str
    kv_dtype: str
    lora: str = ""
    ingest: str = ""

    def digest(self) -> str:
        """64 hex digits: BLAKE3 of the fields as JSON with sorted keys and no spaces."""
        return blake3(json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def chunk_key(fingerprint_digest: str, tenant_salt: str, token_ids: Sequence[int]) -> ChunkKey:
    """Key of the chunk holding `token_ids`, each 0..2**32-1.

    Fields are length-prefixed, so no two different triples hash the same bytes.
    Raises ValueError on an empty or negative-valued sequence, OverflowError on an id over 32 bits.
    """
    if not len(token_ids):
        raise ValueError("chunk key: no token ids")
    if min(token_ids) < 0:
        raise ValueError(f"chunk key: negative token id {min(token_ids)}")
    ids = np.array(token_ids, dtype="<u4").tobytes()
    hasher = blake3(_KEY_CONTEXT)
    for field in (fingerprint_digest.encode(), tenant_salt.encode(), ids):
        hasher.update(struct.pack("<Q", len(field)))
        hasher.update(field)
    return ChunkKey(hasher.hexdigest())
