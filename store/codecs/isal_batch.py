"""Many deflate streams in one call without the GIL: ISA-L's own functions, called by compiled code.

One call a stream hands the GIL over every 15 microseconds, which costs a second thread a fifth of its speed.
"""

import threading
from functools import cache
from typing import Any

import numpy as np
from isal import igzip_lib
from numpy.typing import NDArray

from store import isal_abi as abi
from store.chunk import Spans
from store.errors import IsalUnavailable
from store.member import HEADER_BYTES, STREAM_BYTES, with_sizes

_SLOT_SLACK = 1024
"""Room of a slot beyond the raw bytes: noise grows by 5 bytes a stored block, header and trailer take 32."""

_GUARD_BYTES = 32 * 1024
_STATE_GUARD_BYTES = 4 * 1024
_ALIGNMENT = 64


class IsalBatch:
    """Compresses and decompresses streams of at most `STREAM_BYTES`; thread-safe."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels
        self._threads = threading.local()

    def compress(self, source: NDArray[np.uint8], spans: Spans) -> list[memoryview | None]:
        """A member per span, or None where the one-stream coder has to see to it."""
        slots = np.zeros(len(spans) + 1, np.int64)
        np.cumsum(spans[:, 1] - spans[:, 0] + _SLOT_SLACK, out=slots[1:])
        out = np.empty(slots[-1], np.uint8)
        lengths = np.empty(len(spans), np.int64)
        self._kernels.compress(self._scratch(), source, spans, slots, out, lengths)
        members = zip(slots.tolist(), lengths.tolist(), strict=False)
        return [out.data[slot : slot + length] if length else None for slot, length in members]

    def decompress(
        self, source: NDArray[np.uint8], spans: Spans, out: NDArray[np.uint8], targets: Spans
    ) -> NDArray[np.bool_]:
        """Fill `targets` from the members at `spans`; says which are exactly right, the others may hold anything."""
        done = np.empty(len(spans), np.bool_)
        self._kernels.decompress(self._scratch(), source, spans, out, targets, done)
        return done

    def _scratch(self) -> NDArray[np.uint8]:
        if not hasattr(self._threads, "scratch"):
            self._threads.scratch = _aligned(abi.STATE_BYTES + abi.LEVEL_BYTES)
        scratch: NDArray[np.uint8] = self._threads.scratch
        return scratch


@cache
def isal_batch() -> IsalBatch | IsalUnavailable:
    """The process's batch coder, or why there is none. Loads numba, and compiles on a machine's first call."""
    try:
        abi.addresses()
        from store.codecs import isal_kernels

        _check(isal_kernels)
    except IsalUnavailable as error:
        return error
    return IsalBatch(isal_kernels)


def _check(kernels: Any) -> None:
    """Compare with python-isal on known data. Raises IsalUnavailable when bytes differ or a state is too small."""
    codes = np.random.default_rng(0).geometric(0.4, STREAM_BYTES).astype(np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, STREAM_BYTES).astype(np.uint8)
    for raw in (codes, noise, codes[:1000], codes[:1]):
        member = _checked_compress(kernels, raw)
        if _checked_decompress(kernels, member, raw.size) != raw.tobytes():
            raise IsalUnavailable("ISA-L: another stream came back than went in")
        member[HEADER_BYTES + len(member) // 8] ^= 1
        if _checked_decompress(kernels, member, raw.size) is not None:
            raise IsalUnavailable("ISA-L: a damaged stream went unnoticed")


def _checked_compress(kernels: Any, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    scratch, guards = _guarded()
    out = np.empty(raw.size + _SLOT_SLACK, np.uint8)
    lengths = np.empty(1, np.int64)
    kernels.compress(scratch, raw, np.array([[0, raw.size]]), np.array([0, out.size]), out, lengths)
    member = out[: lengths[0]]
    expected = with_sizes(igzip_lib.compress(raw.data, abi.LEVEL, igzip_lib.COMP_GZIP), raw.size)
    if member.tobytes() != expected or any(guard.any() for guard in guards):
        raise IsalUnavailable("ISA-L: deflate does not do what python-isal's does")
    return member


def _checked_decompress(kernels: Any, member: NDArray[np.uint8], size: int) -> bytes | None:
    scratch, guards = _guarded()
    out = np.zeros(size + _GUARD_BYTES, np.uint8)
    done = np.empty(1, np.bool_)
    kernels.decompress(scratch, member, np.array([[0, member.size]]), out, np.array([[0, size]]), done)
    if out[size:].any() or any(guard.any() for guard in guards):
        raise IsalUnavailable("ISA-L: inflate writes where it should not")
    return out[:size].tobytes() if done[0] else None


def _guarded() -> tuple[NDArray[np.uint8], list[NDArray[np.uint8]]]:
    """A scratch and the parts of its memory that must stay zero: the state's last bytes, and those behind its end."""
    memory = _aligned(abi.STATE_BYTES + abi.LEVEL_BYTES + _GUARD_BYTES)
    end = abi.STATE_BYTES + abi.LEVEL_BYTES
    return memory[:end], [memory[abi.STATE_BYTES - _STATE_GUARD_BYTES : abi.STATE_BYTES], memory[end:]]


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]
