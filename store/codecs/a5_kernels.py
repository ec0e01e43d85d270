"""Numba kernels of the A5 rearrangement; see `a4_kernels` for what they share.

The A byte of a value is `[channel base - exponent, 31 = escape : 5][sign : 1][top mantissa bits : m]`, m 1 or 2. Below
are the nibble plane and, for the 3 - m mantissa bits between, a plane of crumbs: byte i has those of values i, i + q,
i + 2q, ..., q bytes in all.
"""

from typing import Any

import numba
import numpy as np

from store.codecs.a4_kernels import encode_nibbles, tile_of

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")

ESCAPE = 31
OK = -1


@_jit
def encode(
    values: Any, bases: Any, m: Any, a: Any, nibbles: Any, crumbs: Any, positions: Any, exponents: Any, counts: Any
) -> None:
    """Split `values[head, value]` (uint16) into the planes and the escapes of each head."""
    heads, size = values.shape
    half = (size + 1) // 2
    for head in range(heads):
        tile = tile_of(bases[head])
        escapes = 0
        for start in range(0, size, tile.size):
            end = min(start + tile.size, size)
            if _encode_run(values[head, start:end], tile, np.uint16(m), a[head, start:end]):
                for at in range(start, end):
                    if a[head, at] >> (1 + m) == ESCAPE:
                        positions[head, escapes] = at
                        exponents[head, escapes] = (values[head, at] >> 7) & 255
                        escapes += 1
        counts[head] = escapes
        encode_nibbles(values[head, :half], values[head, half:], nibbles[head])
        _encode_crumbs(values[head], np.uint16(3 - m), crumbs[head])


@_jit
def _encode_run(values: Any, bases: Any, m: Any, a: Any) -> Any:
    highest = np.uint16(0)
    mask = np.uint16((1 << m) - 1)
    for at in range(values.size):
        value = values[at]
        code = min(np.uint16(bases[at] - ((value >> 7) & 255)), np.uint16(ESCAPE))
        highest = max(highest, code)
        low = np.uint16((value >> np.uint16(7 - m)) & mask)
        a[at] = np.uint8(np.uint16(code << np.uint16(1 + m)) | np.uint16((value >> 15) << m) | low)
    return highest == ESCAPE


@_jit
def _encode_crumbs(values: Any, width: Any, crumbs: Any) -> None:
    crumbs[:] = 0
    mask = np.uint16((1 << width) - 1)
    for part in range(8 // width):
        piece = values[part * crumbs.size : (part + 1) * crumbs.size]
        shift = np.uint16(part * width)
        for index in range(piece.size):
            crumbs[index] |= np.uint8(((piece[index] >> 4) & mask) << shift)


@_jit
def decode(source: Any, raw_at: Any, escapes: Any, a: Any, bases: Any, m: Any, values: Any) -> int:
    """Inverse of `encode`; nibbles, crumbs and escapes of a head are at `source[raw_at[head]:]`.

    Returns `OK`, or the head that has an escape position outside its section.
    """
    heads, size = values.shape
    dim = bases.shape[1]
    half, crumb_bytes = (size + 1) // 2, (size * (3 - m) + 7) // 8
    shifted = np.empty(dim, np.uint16)
    for head in range(heads):
        at = raw_at[head]
        nibbles, crumbs = source[at : at + half], source[at + half : at + half + crumb_bytes]
        _join(a[head, :half], nibbles, np.uint16(m), np.uint16(0), values[head, :half])
        _join(a[head, half:], nibbles, np.uint16(m), np.uint16(4), values[head, half:])
        _add_crumbs(crumbs, np.uint16(3 - m), values[head])
        for channel in range(dim):
            shifted[channel] = np.uint16(bases[head, channel]) << 7
        for row in range(0, size, dim):
            _add(shifted, values[head, row : row + dim])
        if not _patch(source[at + half + crumb_bytes :], escapes[head], a[head], m, values[head]):
            return head
    return OK


@_jit
def _join(a: Any, nibbles: Any, m: Any, shift: Any, values: Any) -> None:
    """Sign, top mantissa bits and nibble, less the code in the exponent; the base is added to it later."""
    mask = np.uint16((1 << m) - 1)
    up, down, left = np.uint16(7 - m), np.uint16(1 + m), np.uint16(15 - m)
    sign = np.uint16(1) << m
    for index in range(values.size):
        wide = np.uint16(a[index])
        known = np.uint16((wide & sign) << left) | np.uint16((wide & mask) << up)
        code = np.uint16((wide >> down) << 7)
        values[index] = np.uint16(known - code) | np.uint16((np.uint16(nibbles[index]) >> shift) & 15)


@_jit
def _add_crumbs(crumbs: Any, width: Any, values: Any) -> None:
    mask = np.uint16((1 << width) - 1)
    for part in range(8 // width):
        piece = values[part * crumbs.size : (part + 1) * crumbs.size]
        shift = np.uint16(part * width)
        for index in range(piece.size):
            piece[index] |= np.uint16(((np.uint16(crumbs[index]) >> shift) & mask) << 4)


@_jit
def _add(bases: Any, row: Any) -> None:
    for channel in range(row.size):
        row[channel] += bases[channel]


@_jit
def _patch(source: Any, count: int, a: Any, m: Any, values: Any) -> bool:
    for index in range(count):
        position = np.int64(0)
        for byte in range(4):
            position |= np.int64(source[index * 4 + byte]) << (8 * byte)
        if position >= values.size:
            return False
        sign = np.uint16((a[position] >> m) & 1) << 15
        values[position] = sign | np.uint16(source[count * 4 + index]) << 7 | (values[position] & 0x7F)
    return True
