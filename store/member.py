"""QATzip's gzip member: an ordinary gzip member whose extra field carries the raw and the deflated size.

Layout from QATzip 1.3.1 (`QZ_DEFLATE_GZIP_EXT`): 10 bytes of gzip header, extra length 12, "QZ", 8, raw size u32,
deflate size u32, the deflate stream, CRC-32 and size of the raw bytes.
"""

import struct

from store.errors import CorruptBlob

STREAM_BYTES = 64 * 1024
"""Most raw bytes of one member: the hardware's buffer, and Gen6's largest compress block."""

HEADER_BYTES = 24
TRAILER_BYTES = 8
_PLAIN_HEADER_BYTES = 10

_HEADER = struct.Struct("<10sH2sHII")
_GZIP = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"


def with_sizes(member: bytes, raw_size: int) -> bytes:
    """Add QATzip's extra field to one gzip member of `raw_size` bytes that has a plain header."""
    deflated = len(member) - _PLAIN_HEADER_BYTES - TRAILER_BYTES
    return b"".join((header(raw_size, deflated), memoryview(member)[_PLAIN_HEADER_BYTES:]))


def header(raw_size: int, deflated: int) -> bytes:
    """The header of a member of `raw_size` bytes whose deflate stream has `deflated`."""
    return _HEADER.pack(_GZIP, 12, b"QZ", 8, raw_size, deflated)


def check_member(member: memoryview | bytes, raw_size: int) -> None:
    """Check that `member` is exactly one member of `raw_size` raw bytes. Raises CorruptBlob otherwise.

    mtime, flags of the compressor and the operating system byte are free.
    """
    if len(member) < HEADER_BYTES + TRAILER_BYTES:
        raise CorruptBlob(f"gzip member: {len(member)} bytes, expected at least {HEADER_BYTES + TRAILER_BYTES}")
    gzip, extra, tag, field, raw, deflated = _HEADER.unpack_from(member)
    if gzip[:4] != _GZIP[:4] or (extra, tag, field) != (12, b"QZ", 8):
        raise CorruptBlob("gzip member: not a member with QATzip's extra field")
    if raw != raw_size or raw > STREAM_BYTES:
        raise CorruptBlob(f"gzip member: {raw} raw bytes, expected {raw_size}")
    if HEADER_BYTES + deflated + TRAILER_BYTES != len(member):
        raise CorruptBlob(f"gzip member: {deflated} deflated bytes stated in a member of {len(member)}")
