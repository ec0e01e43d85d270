"""Numba kernels of the A4 rearrangement; all release the GIL and are cached on disk.

bf16 is sign, 8 exponent bits, 7 mantissa bits. The A byte of a value is
`[channel base - exponent, 15 = escape : 4][sign : 1][top mantissa bits : 3]`; byte i of the nibble plane holds the low
4 mantissa bits of value i and of value i + ceil(values / 2). Escaped exponents follow as (position, exponent).
Loops are flat and short of operands so that LLVM vectorises them; `[head, value]` arrays are token-major.
"""

from typing import Any

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")

ESCAPE = 15
OK = -1

EXPONENT = np.uint16(0x7F80)
RUN_VALUES = 512
"""About as many values of whole rows are handled by one loop: over a single row it would end before it is under way."""


@_jit
def channel_bases(plane: Any, bases: Any, escape: Any) -> None:
    """Fill `bases[head, channel]` from the contiguous `plane[head, token, channel]` (uint16).

    The lowest base that leaves the fewest exponents outside base-escape+1..base. It is an exponent that occurs, so
    channels' codes have similar statistics; where all exponents fit, it is the largest.
    """
    heads, tokens, dim = plane.shape
    for head in range(heads):
        low, high = tile_of(np.full(dim, EXPONENT)), tile_of(np.zeros(dim, np.uint16))
        values = plane[head].reshape(tokens * dim)
        for start in range(0, values.size, low.size):
            _widen(values[start : start + low.size], low, high)
        for channel in range(dim):
            least, most = low[channel::dim].min() >> 7, high[channel::dim].max() >> 7
            fits = most - least < escape
            bases[head, channel] = most if fits else _fewest_escapes(plane[head, :, channel], least, most, escape)


@_jit
def tile_of(bases: Any) -> Any:
    """The bases of a head, `[dim]`, over and over for a run of whole rows."""
    tile = np.empty(bases.size * max(1, RUN_VALUES // bases.size), np.uint16)
    for at in range(tile.size):
        tile[at] = bases[at % bases.size]
    return tile


@_jit
def _widen(values: Any, low: Any, high: Any) -> None:
    for at in range(values.size):
        exponent = np.uint16(values[at] & EXPONENT)
        low[at] = min(low[at], exponent)
        high[at] = max(high[at], exponent)


@_jit
def _fewest_escapes(column: Any, least: Any, most: Any, escape: Any) -> int:
    counts = np.zeros(256, np.int64)
    for value in column:
        counts[(value >> 7) & 255] += 1
    window, best, chosen = 0, -1, 0
    for base in range(least, most + 1):
        window += counts[base]
        if base >= escape:
            window -= counts[base - escape]
        if window > best:
            best, chosen = window, base
    return chosen


@_jit
def encode(values: Any, bases: Any, a: Any, nibbles: Any, positions: Any, exponents: Any, counts: Any) -> None:
    """Split `values[head, value]` (uint16) into the planes and the escapes of each head."""
    heads, size = values.shape
    half = (size + 1) // 2
    for head in range(heads):
        tile = tile_of(bases[head])
        escapes = 0
        for start in range(0, size, tile.size):
            end = min(start + tile.size, size)
            if _encode_run(values[head, start:end], tile, a[head, start:end]):
                for at in range(start, end):
                    if a[head, at] >> 4 == ESCAPE:
                        positions[head, escapes] = at
                        exponents[head, escapes] = (values[head, at] >> 7) & 255
                        escapes += 1
        counts[head] = escapes
        encode_nibbles(values[head, :half], values[head, half:], nibbles[head])


@_jit
def _encode_run(values: Any, bases: Any, a: Any) -> Any:
    highest = np.uint16(0)
    for at in range(values.size):
        value = values[at]
        code = min(np.uint16(bases[at] - ((value >> 7) & 255)), np.uint16(ESCAPE))
        highest = max(highest, code)
        a[at] = np.uint8(np.uint16(code << 4) | np.uint16((value >> 12) & 8) | np.uint16((value >> 4) & 7))
    return highest == ESCAPE


@_jit
def encode_nibbles(low: Any, high: Any, nibbles: Any) -> None:
    """Fill the nibble plane from the first and the second half of the values."""
    for index in range(high.size):
        nibbles[index] = np.uint8(low[index] & 15) | np.uint8((high[index] & 15) << 4)
    if low.size > high.size:
        nibbles[high.size] = np.uint8(low[high.size] & 15)


@_jit
def decode(source: Any, nibbles_at: Any, escapes: Any, a: Any, bases: Any, values: Any) -> int:
    """Inverse of `encode`; nibbles and escapes of a head are at `source[nibbles_at[head]:]`.

    Returns `OK`, or the head that has an escape position outside its section.
    """
    heads, size = values.shape
    dim = bases.shape[1]
    half = (size + 1) // 2
    shifted = np.empty(dim, np.uint16)
    for head in range(heads):
        at = nibbles_at[head]
        nibbles = source[at : at + half]
        _join_low(a[head, :half], nibbles, values[head, :half])
        _join_high(a[head, half:], nibbles, values[head, half:])
        for channel in range(dim):
            shifted[channel] = np.uint16(bases[head, channel]) << 7
        for row in range(0, size, dim):
            _add(shifted, values[head, row : row + dim])
        if not _patch(source[at + half :], escapes[head], a[head], values[head]):
            return head
    return OK


@_jit
def _join_low(a: Any, nibbles: Any, values: Any) -> None:
    for index in range(values.size):
        values[index] = _rest(a[index]) | np.uint16(nibbles[index] & 15)


@_jit
def _join_high(a: Any, nibbles: Any, values: Any) -> None:
    for index in range(values.size):
        values[index] = _rest(a[index]) | np.uint16(nibbles[index] >> 4)


@_jit
def _rest(a: Any) -> Any:
    """Sign and top mantissa bits, less the code in the exponent; adding the base to it makes the borrow good."""
    wide = np.uint16(a)
    return np.uint16(np.uint16(((wide & 8) << 12) | ((wide & 7) << 4)) - np.uint16((wide & 0xF0) << 3))


@_jit
def _add(bases: Any, row: Any) -> None:
    for channel in range(row.size):
        row[channel] += bases[channel]


@_jit
def _patch(source: Any, count: int, a: Any, values: Any) -> bool:
    for index in range(count):
        position = np.int64(0)
        for byte in range(4):
            position |= np.int64(source[index * 4 + byte]) << (8 * byte)
        if position >= values.size:
            return False
        sign = np.uint16(a[position] & 8) << 12
        values[position] = sign | np.uint16(source[count * 4 + index]) << 7 | (values[position] & 0x7F)
    return True
