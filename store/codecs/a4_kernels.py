"""Numba kernels of the A4 rearrangement; all release the GIL and are cached on disk.

bf16 is sign, 8 exponent bits, 7 mantissa bits. The A byte of a value is
`[channel base - exponent, 15 = escape : 4][sign : 1][top mantissa bits : 3]`; the low 4 mantissa bits of channels c and
c + ceil(head_dim / 2) share a byte of the nibble plane. Escaped exponents follow as (position, exponent).
"""

from typing import Any

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")

ESCAPE = 15
OK = -1


@_jit
def channel_bases(plane: Any, stride: int, bases: Any) -> None:
    """Fill `bases[head, channel]` from every `stride`-th token of `plane[head, token, channel]`.

    The lowest base that leaves the fewest exponents outside base-14..base: an exponent that occurs, so that channels'
    codes have similar statistics.
    """
    heads, tokens, dim = plane.shape
    counts = np.zeros((dim, 256), np.uint32)
    for head in range(heads):
        counts[:] = 0
        for token in range(0, tokens, stride):
            for channel in range(dim):
                counts[channel, (plane[head, token, channel] >> 7) & 255] += 1
        for channel in range(dim):
            window, best, chosen = 0, -1, 0
            for base in range(256):
                window += counts[channel, base]
                if base >= ESCAPE:
                    window -= counts[channel, base - ESCAPE]
                if window > best:
                    best, chosen = window, base
            bases[head, channel] = chosen


@_jit
def encode(block: Any, bases: Any, a: Any, nibbles: Any, positions: Any, exponents: Any, counts: Any) -> None:
    """Split `block[head, token, channel]` (uint16, contiguous) into token-major planes and escapes, per head."""
    heads, tokens, dim = block.shape
    half = (dim + 1) // 2
    for head in range(heads):
        escapes = 0
        for token in range(tokens):
            values, row = block[head, token], a[head, token * dim : (token + 1) * dim]
            if _encode_row(values, bases[head], row):
                for channel in range(dim):
                    if row[channel] >> 4 == ESCAPE:
                        positions[head, escapes] = token * dim + channel
                        exponents[head, escapes] = (values[channel] >> 7) & 255
                        escapes += 1
            _encode_nibbles(values[:half], values[half:], nibbles[head, token * half : (token + 1) * half])
        counts[head] = escapes


@_jit
def _encode_row(values: Any, bases: Any, row: Any) -> Any:
    missed = np.uint8(0)
    for channel in range(row.size):
        value = values[channel]
        code = min(np.uint8(bases[channel] - np.uint8(value >> 7)), np.uint8(ESCAPE))
        missed |= np.uint8(code == ESCAPE)
        row[channel] = np.uint8(code << 4) | np.uint8((value >> 15) << 3) | np.uint8((value >> 4) & 7)
    return missed


@_jit
def _encode_nibbles(low: Any, high: Any, row: Any) -> None:
    for channel in range(low.size):
        row[channel] = np.uint8(low[channel] & 15)
    for channel in range(high.size):
        row[channel] |= np.uint8((high[channel] & 15) << 4)


@_jit
def decode(source: Any, nibbles_at: Any, escapes: Any, a: Any, bases: Any, out: Any) -> int:
    """Inverse of `encode` from token-major planes `a`; nibbles and escapes are at `source[nibbles_at[head]]`.

    Returns `OK`, or the head that has an escape position outside its section.
    """
    heads, tokens, dim = out.shape
    half = (dim + 1) // 2
    for head in range(heads):
        at = nibbles_at[head]
        for token in range(tokens):
            row, values = a[head, token * dim : (token + 1) * dim], out[head, token]
            nibbles = source[at + token * half : at + (token + 1) * half]
            _join_low(bases[head], row, nibbles, values[:half])
            _join_high(bases[head, half:], row[half:], nibbles, values[half:])
        if not _patch(source[at + tokens * half :], escapes[head], out[head]):
            return head
    return OK


@_jit
def _join_low(bases: Any, row: Any, nibbles: Any, values: Any) -> None:
    for channel in range(values.size):
        values[channel] = _join(bases[channel], row[channel], nibbles[channel] & 15)


@_jit
def _join_high(bases: Any, row: Any, nibbles: Any, values: Any) -> None:
    for channel in range(values.size):
        values[channel] = _join(bases[channel], row[channel], nibbles[channel] >> 4)


@_jit
def _join(base: Any, a: Any, low: Any) -> Any:
    exponent = np.uint16(np.uint8(base - (a >> 4)))
    return np.uint16(np.uint16(np.uint16(a & 8) << 12) | np.uint16(exponent << 7) | np.uint16((a & 7) << 4) | low)


@_jit
def _patch(source: Any, count: int, section: Any) -> bool:
    tokens, dim = section.shape
    for index in range(count):
        position = np.int64(0)
        for byte in range(4):
            position |= np.int64(source[index * 4 + byte]) << (8 * byte)
        if position >= tokens * dim:
            return False
        exponent = np.uint16(source[count * 4 + index])
        token, channel = position // dim, position % dim
        section[token, channel] = (section[token, channel] & np.uint16(0x807F)) | np.uint16(exponent << 7)
    return True
