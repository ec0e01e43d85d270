"""Numba kernels that deflate and inflate many streams by ISA-L in one call without the GIL.

Import only once `store.isal_abi.addresses` has found the functions: compiled code refers to them by name.
`scratch` is a thread's own: `STATE_BYTES` and `LEVEL_BYTES` of `store.isal_abi`, 64-byte aligned. Spans are
`[streams, 2]`, first byte and end. What a kernel does not do, it leaves to the one-stream verb by saying so per stream.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import binding  # type: ignore[import-untyped]

from store import isal_abi as abi
from store.member import HEADER_BYTES, STREAM_BYTES, TRAILER_BYTES, header

_PREFIX = "kvfuse_"
"""Keeps our names apart from those of another ISA-L in the process."""

for _name, _address in abi.addresses().items():
    binding.add_symbol(_PREFIX + _name, _address)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return numba.types.ExternalFunction(_PREFIX + name, numba.core.typing.signature(result, *arguments))


_pointer = numba.types.uintp
_deflate_init = _function("isal_deflate_init", numba.types.void, _pointer)
_deflate = _function("isal_deflate", numba.types.int32, _pointer)
_inflate_init = _function("isal_inflate_init", numba.types.void, _pointer)
_inflate = _function("isal_inflate_stateless", numba.types.int32, _pointer)
_crc32 = _function("crc32_gzip_refl", numba.types.uint32, numba.types.uint32, _pointer, numba.types.uint64)

_options = {"nogil": True, "cache": True, "error_model": "numpy"}
_jit = numba.njit(**_options)

_bytes, _numbers = numba.types.uint8[::1], numba.types.int64[::1]
_source = numba.types.Array(numba.types.uint8, 1, "C", readonly=True)
_spans = numba.types.Array(numba.types.int64, 2, "C", readonly=True)
"""One signature each, so that every process loads the same compiled code: what may be read-only always counts so."""

_HEADER = np.frombuffer(header(0, 0), np.uint8)
_FREE_FROM, _FREE_TO = 4, 10
"""Bytes of the header that may be anything; see `store.member.check_member`."""

_RAW_AT = HEADER_BYTES - 8
_DEFLATED_AT = HEADER_BYTES - 4

_MARGIN = 64
"""Room that must be left for a stream to be taken for finished, instead of reading ISA-L's inner state."""


@_jit
def _read_u32(data: Any, at: int) -> Any:
    low = np.int64(data[at]) | np.int64(data[at + 1]) << 8
    return low | np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24


@_jit
def _write_u32(data: Any, at: int, value: int) -> None:
    for byte in range(4):
        data[at + byte] = (value >> (8 * byte)) & 255


@_jit
def _deflate_one(scratch: Any, raw: Any, out: Any) -> Any:
    """Bytes of the deflate stream and the trailer of `raw`, 0 when `out` was too short."""
    at = scratch.ctypes.data
    by64, by32, by16 = scratch.view(np.uint64), scratch.view(np.uint32), scratch.view(np.uint16)
    _deflate_init(at)
    by64[abi.Z_NEXT_IN_64], by32[abi.Z_AVAIL_IN_32] = raw.ctypes.data, raw.size
    by64[abi.Z_NEXT_OUT_64], by32[abi.Z_AVAIL_OUT_32] = out.ctypes.data, out.size
    by64[abi.Z_LEVEL_BUFFER_64], by32[abi.Z_LEVEL_SIZE_32] = at + abi.STATE_BYTES, abi.LEVEL_BYTES
    by32[abi.Z_LEVEL_32] = abi.LEVEL
    by16[abi.Z_END_OF_STREAM_16], by16[abi.Z_GZIP_FLAG_16] = 1, abi.GZIP_NO_HEADER
    done = _deflate(at) == abi.OK and by32[abi.Z_AVAIL_IN_32] == 0 and by32[abi.Z_AVAIL_OUT_32] >= _MARGIN
    return np.int64(by32[abi.Z_TOTAL_OUT_32]) if done else np.int64(0)


@_jit
def _is_member(member: Any, raw_size: int) -> Any:
    deflated = member.size - HEADER_BYTES - TRAILER_BYTES
    if deflated < 0 or raw_size > STREAM_BYTES:
        return False
    if _read_u32(member, _RAW_AT) != raw_size or _read_u32(member, _DEFLATED_AT) != deflated:
        return False
    for at in range(_RAW_AT):
        if member[at] != _HEADER[at] and not _FREE_FROM <= at < _FREE_TO:
            return False
    return _read_u32(member, member.size - 4) == raw_size


@_jit
def _inflate_one(scratch: Any, member: Any, out: Any) -> Any:
    """Whether the member's stream fills `out`, ends exactly before the trailer, and has the trailer's CRC-32."""
    at = scratch.ctypes.data
    by64, by32 = scratch.view(np.uint64), scratch.view(np.uint32)
    _inflate_init(at)
    by64[abi.I_NEXT_IN_64] = member.ctypes.data + HEADER_BYTES
    by32[abi.I_AVAIL_IN_32] = member.size - HEADER_BYTES - TRAILER_BYTES
    by64[abi.I_NEXT_OUT_64], by32[abi.I_AVAIL_OUT_32] = out.ctypes.data, out.size
    if _inflate(at) != abi.OK or by32[abi.I_AVAIL_IN_32] != 0 or by32[abi.I_AVAIL_OUT_32] != 0:
        return False
    crc = _crc32(np.uint32(0), out.ctypes.data, np.uint64(out.size))
    return np.int64(crc) == _read_u32(member, member.size - TRAILER_BYTES)


@numba.njit(numba.types.void(_bytes, _source, _spans, _numbers, _bytes, _numbers), **_options)
def compress(scratch: Any, source: Any, spans: Any, slots: Any, out: Any, lengths: Any) -> None:
    """Write the member of each span to `out[slots[i] : slots[i + 1]]`; a length of 0 says that it did not fit."""
    for index in range(spans.shape[0]):
        start, end = spans[index]
        slot = out[slots[index] : slots[index + 1]]
        deflated, lengths[index] = 0, 0
        if end - start <= STREAM_BYTES:
            deflated = _deflate_one(scratch, source[start:end], slot[HEADER_BYTES:])
        if deflated >= TRAILER_BYTES:
            slot[:HEADER_BYTES] = _HEADER
            _write_u32(slot, _RAW_AT, end - start)
            _write_u32(slot, _DEFLATED_AT, deflated - TRAILER_BYTES)
            lengths[index] = HEADER_BYTES + deflated


@numba.njit(numba.types.void(_bytes, _source, _spans, _bytes, _spans, numba.types.boolean[::1]), **_options)
def decompress(scratch: Any, source: Any, spans: Any, out: Any, targets: Any, done: Any) -> None:
    """Fill each of `targets` in `out` from its member in `source`; `done[i]` says whether it is exactly right."""
    for index in range(spans.shape[0]):
        member = source[spans[index, 0] : spans[index, 1]]
        target = out[targets[index, 0] : targets[index, 1]]
        done[index] = _is_member(member, target.size) and _inflate_one(scratch, member, target)
