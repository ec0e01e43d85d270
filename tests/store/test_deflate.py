import gzip
import os

import numpy as np
import pytest

from store.deflate import SoftwareDeflate
from store.errors import CorruptBlob
from store.member import STREAM_BYTES, check_member

DEFLATE = SoftwareDeflate()
CODES = np.random.default_rng(0).geometric(0.4, STREAM_BYTES).astype(np.uint8).tobytes()
SIZES = [0, 1, 1023, 1024, STREAM_BYTES - 1, STREAM_BYTES]


def unpack(member: bytes, size: int) -> bytes:
    out = bytearray(size)
    DEFLATE.decompress_into(memoryview(member), memoryview(out))
    return bytes(out)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("data", [CODES, os.urandom(STREAM_BYTES)], ids=["codes", "noise"])
def test_round_trip_and_stdlib_reads_it(size: int, data: bytes) -> None:
    member = DEFLATE.compress(memoryview(data)[:size])
    check_member(member, size)
    assert unpack(member, size) == gzip.decompress(member) == data[:size]


def test_members_the_stdlib_made_are_read_once_they_carry_the_extra_field() -> None:
    plain = gzip.compress(CODES, 6, mtime=1)
    member = plain[:3] + b"\x04" + plain[4:10] + b"\x0c\0QZ\x08\0"
    member += STREAM_BYTES.to_bytes(4, "little") + (len(plain) - 18).to_bytes(4, "little") + plain[10:]
    assert unpack(member, STREAM_BYTES) == CODES


def test_more_than_a_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="65537 bytes, expected at most 65536"):
        DEFLATE.compress(memoryview(bytes(STREAM_BYTES + 1)))


def test_every_truncation_and_extension_is_damage() -> None:
    member = DEFLATE.compress(memoryview(CODES)[:500])
    for length in range(len(member)):
        with pytest.raises(CorruptBlob):
            unpack(member[:length], 500)
    with pytest.raises(CorruptBlob):
        unpack(member + b"\0", 500)
    with pytest.raises(CorruptBlob):
        unpack(member + member, 1000)


@pytest.mark.parametrize("size", [0, 499, 501, 1000])
def test_a_destination_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(CorruptBlob):
        unpack(DEFLATE.compress(memoryview(CODES)[:500]), size)


def test_bit_flips_are_damage_except_in_free_header_bytes() -> None:
    """Free too: the at most seven bits that pad the deflate stream to a byte."""
    member = DEFLATE.compress(memoryview(CODES)[:500])
    unnoticed = []
    for offset in set(range(len(member))) - set(range(4, 10)):
        for bit in range(8):
            flipped = bytearray(member)
            flipped[offset] ^= 1 << bit
            try:
                assert unpack(bytes(flipped), 500) == CODES[:500]
            except CorruptBlob:
                continue
            unnoticed.append(offset)
    assert set(unnoticed) <= {len(member) - 9}
    assert len(unnoticed) < 8


def test_calls_are_counted() -> None:
    deflate = SoftwareDeflate()
    deflate.decompress_into(memoryview(deflate.compress(memoryview(b"abc"))), memoryview(bytearray(3)))
    assert deflate.counters.snapshot() == {"sw_calls": 2}
