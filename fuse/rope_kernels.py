"""The numba kernel of re-rotation for bf16 keys on the host; releases the GIL and is cached on disk.

Bits are reinterpreted one value at a time and rows are indexed where they lie, so that LLVM vectorises each loop: a
sixth of the time of the same arithmetic in torch on one thread, which passes over the keys several times (measured).
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import intrinsic

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")

_CUT = np.uint32(16)
_HALF = np.uint32(0x7FFF)


@_jit
def rotate(keys: Any, cos: Any, sin: Any, neox: Any) -> None:
    """Rotate bf16 `keys[token, head, channel]` (uint16, finite) in place by float32 `cos`, `sin` `[token, pair]`."""
    tokens, heads, _ = keys.shape
    pairs = cos.shape[1]
    for token in range(tokens):
        for head in range(heads):
            if neox:
                for pair in range(pairs):
                    x, y = keys[token, head, pair], keys[token, head, pair + pairs]
                    x, y = _turned(x, y, cos[token, pair], sin[token, pair])
                    keys[token, head, pair], keys[token, head, pair + pairs] = x, y
            else:
                for pair in range(pairs):
                    x, y = keys[token, head, 2 * pair], keys[token, head, 2 * pair + 1]
                    x, y = _turned(x, y, cos[token, pair], sin[token, pair])
                    keys[token, head, 2 * pair], keys[token, head, 2 * pair + 1] = x, y


@_jit
def _turned(first: Any, second: Any, cos: Any, sin: Any) -> Any:
    x, y = _widen(first), _widen(second)
    return _round(x * cos - y * sin), _round(y * cos + x * sin)


@intrinsic
def _as_float(typing_context: Any, bits: Any) -> Any:
    """Reinterpret a uint32 as a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return numba.types.float32(numba.types.uint32), generate


@intrinsic
def _as_bits(typing_context: Any, value: Any) -> Any:
    """Reinterpret a float32 as a uint32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return numba.types.uint32(numba.types.float32), generate


@_jit
def _widen(bf16: Any) -> Any:
    return _as_float(np.uint32(bf16) << _CUT)


@_jit
def _round(value: Any) -> Any:
    """To the nearest bf16, ties to even."""
    bits = _as_bits(value)
    return np.uint16((bits + _HALF + ((bits >> _CUT) & np.uint32(1))) >> _CUT)
