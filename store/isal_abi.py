"""The C functions of ISA-L this package calls inside python-isal's extension, and the struct fields they use.

Offsets are those of `struct isal_zstream` and `struct inflate_state` in ISA-L's include/igzip_lib.h on a 64-bit
machine. Only the public fields at the head of both structs are touched. The rest is ISA-L's own, so its size is a bound
that `store.codecs.isal_batch` checks.
"""

import ctypes

from isal import igzip_lib

from store.errors import IsalUnavailable

SYMBOLS = ("isal_deflate_init", "isal_deflate", "isal_inflate_init", "isal_inflate_stateless", "crc32_gzip_refl")

LEVEL = 1
"""igzip's level 1: 10 times zlib-1's speed at an equal or better ratio (measured in the design's codec page)."""

STATE_BYTES = 96 * 1024
"""Bound of either struct: two histories of 32 KiB, a lookahead and the tables, about 83 KiB and 87 KiB."""

LEVEL_BYTES = 4 * 1024 + 2 * 8 * 1024 + 4 * 64 * 1024
"""`ISAL_DEF_LVL1_DEFAULT`, which python-isal passes too: a smaller buffer may end blocks elsewhere."""

# struct isal_zstream: index of a field in an array of its width.
Z_NEXT_IN_64 = 0
Z_AVAIL_IN_32 = 2
Z_NEXT_OUT_64 = 2
Z_AVAIL_OUT_32 = 6
Z_TOTAL_OUT_32 = 7
Z_LEVEL_32 = 10
Z_LEVEL_SIZE_32 = 11
Z_LEVEL_BUFFER_64 = 6
Z_END_OF_STREAM_16 = 28
Z_GZIP_FLAG_16 = 30

# struct inflate_state.
I_NEXT_OUT_64 = 0
I_AVAIL_OUT_32 = 2
I_NEXT_IN_64 = 2
I_AVAIL_IN_32 = 8

GZIP_NO_HEADER = 2
"""`IGZIP_GZIP_NO_HDR`: a gzip trailer behind the deflate stream, no header before it."""

OK = 0
"""`COMP_OK` and `ISAL_DECOMP_OK`."""


def addresses() -> dict[str, int]:
    """Where each of `SYMBOLS` is in this process. Raises IsalUnavailable naming what is missing."""
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        raise IsalUnavailable("ISA-L: its structs are known for 64-bit machines only")
    try:
        library = ctypes.CDLL(igzip_lib.__file__)
        found = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in SYMBOLS}
    except (OSError, AttributeError) as error:
        raise IsalUnavailable(f"ISA-L: {error}") from error
    return {name: address for name, address in found.items() if address is not None}
