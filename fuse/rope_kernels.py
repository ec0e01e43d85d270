"""The numba kernel of re-rotation for bf16 keys on the host; releases the GIL and is cached on disk.

Half the processor time of the same arithmetic in torch, which passes over the keys several times (measured).
"""

from typing import Any

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")

_MANTISSA_CUT = np.uint32(16)
_HALF = np.uint32(0x7FFF)


@_jit
def rotate(keys: Any, cos: Any, sin: Any, neox: Any) -> None:
    """Rotate bf16 `keys[token, head, channel]` (uint16, finite) in place by float32 `cos`, `sin` `[token, pair]`."""
    tokens, heads, _ = keys.shape
    pairs = cos.shape[1]
    # Views are made here: made for each row they cost more than its arithmetic.
    a, b = np.empty(pairs, np.uint32), np.empty(pairs, np.uint32)
    x, y = a.view(np.float32), b.view(np.float32)
    for token in range(tokens):
        for head in range(heads):
            row = keys[token, head]
            if neox:
                _rotate_row(row[:pairs], row[pairs : 2 * pairs], a, b, x, y, cos[token], sin[token])
            else:
                _rotate_row(row[0 : 2 * pairs : 2], row[1 : 2 * pairs : 2], a, b, x, y, cos[token], sin[token])


@_jit
def _rotate_row(first: Any, second: Any, a: Any, b: Any, x: Any, y: Any, cos: Any, sin: Any) -> None:
    """Rotate a row, given by its halves, in `x` and `y`, whose bits `a` and `b` are."""
    _widen(first, a)
    _widen(second, b)
    _turn(x, y, cos, sin)
    _round(a, first)
    _round(b, second)


@_jit
def _widen(bf16: Any, bits: Any) -> None:
    for index in range(bf16.size):
        bits[index] = np.uint32(bf16[index]) << _MANTISSA_CUT


@_jit
def _turn(x: Any, y: Any, cos: Any, sin: Any) -> None:
    for index in range(x.size):
        a, b = x[index], y[index]
        x[index] = a * cos[index] - b * sin[index]
        y[index] = b * cos[index] + a * sin[index]


@_jit
def _round(bits: Any, bf16: Any) -> None:
    """To the nearest bf16, ties to even."""
    for index in range(bits.size):
        value = bits[index]
        bf16[index] = np.uint16((value + _HALF + ((value >> _MANTISSA_CUT) & np.uint32(1))) >> _MANTISSA_CUT)
