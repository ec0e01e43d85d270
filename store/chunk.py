"""The values the store moves: a chunk's layout, its description, and the chunk with its data."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from store.keys import ChunkKey, is_hash, parse_chunk_key

Bits = np.ndarray[Any, np.dtype[Any]]
"""KV values as unsigned integers of the value's width: uint16 for bf16 and fp16, uint32 for fp32."""

K, V = 0, 1
"""Index of K and of V on axis 1 of a chunk."""

Spans = NDArray[np.int64]
"""First byte and end of several runs in one buffer, `[runs, 2]`."""


class KVDType(Enum):
    """Element type of K and V; the store sees only the bits."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"

    @property
    def bits(self) -> np.dtype[Any]:
        """Unsigned integer dtype of the same width."""
        return np.dtype("<u4") if self is KVDType.FP32 else np.dtype("<u2")


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Shape of a model's KV cache, for all tensor-parallel ranks together."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: KVDType

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"KV layout: {name} is {getattr(self, name)}, expected at least 1")

    @property
    def token_bytes(self) -> int:
        """Uncompressed bytes of one token's K and V over all layers."""
        return self.layers * 2 * self.kv_heads * self.head_dim * self.dtype.bits.itemsize


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """What a chunk file says about itself. `fingerprint` and `predecessor` are 64 hex digits ("" = no predecessor).

    `base_position` is the position of the first token when its K was rotated.
    """

    key: ChunkKey
    fingerprint: str
    layout: KVLayout
    tokens: int
    base_position: int
    codec: str
    predecessor: str = ""
    has_scores: bool = False

    @property
    def raw_bytes(self) -> int:
        """Uncompressed bytes of K and V."""
        return self.tokens * self.layout.token_bytes


@dataclass(frozen=True, slots=True, eq=False)
class KVChunk:
    """The K and V of one passage for one model, to be stored.

    `data` is `[layers, 2, kv_heads, tokens, head_dim]` of `layout.dtype.bits`, any strides; `scores` is float16
    `[tokens]`.
    Raises ValueError when shapes, dtypes or hashes do not fit together.
    """

    key: ChunkKey
    fingerprint: str
    layout: KVLayout
    base_position: int
    data: Bits
    scores: NDArray[np.float16] | None = None
    predecessor: str = ""

    def __post_init__(self) -> None:
        parse_chunk_key(self.key)
        if not is_hash(self.fingerprint):
            raise ValueError(f"chunk fingerprint: expected 64 hex digits, got {self.fingerprint[:80]!r}")
        if self.predecessor and not is_hash(self.predecessor):
            raise ValueError(f"chunk predecessor: expected 64 hex digits or nothing, got {self.predecessor[:80]!r}")
        self._check_data()
        self._check_scores()

    @property
    def tokens(self) -> int:
        """Number of tokens in `data`."""
        return int(self.data.shape[3])

    @property
    def raw_bytes(self) -> int:
        """Uncompressed bytes of K and V."""
        return self.tokens * self.layout.token_bytes

    def info(self, codec: str) -> ChunkInfo:
        """Description of this chunk once stored by the chain `codec`."""
        return ChunkInfo(
            self.key, self.fingerprint, self.layout, self.tokens, self.base_position, codec, self.predecessor,
            self.scores is not None,
        )  # fmt: skip

    def _check_data(self) -> None:
        layout = self.layout
        if self.data.dtype != layout.dtype.bits:
            raise ValueError(f"chunk data: dtype {self.data.dtype}, expected {layout.dtype.bits}")
        expected = (layout.layers, 2, layout.kv_heads, "tokens", layout.head_dim)
        shape = self.data.shape
        if len(shape) != 5 or shape[3] < 1 or (*shape[:3], "tokens", shape[4]) != expected:
            raise ValueError(f"chunk data: shape {shape}, expected {expected} with at least one token")

    def _check_scores(self) -> None:
        scores = self.scores
        if scores is not None and (scores.dtype != np.float16 or scores.shape != (self.tokens,)):
            raise ValueError(f"chunk scores: {scores.dtype}{scores.shape}, expected float16({self.tokens},)")
