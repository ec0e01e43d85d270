"""Any damage to a file is an error of the store, never wrong values and never another exception."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from store import KVChunk, KVDType, StoreError
from store.errors import CorruptChunk, TruncatedChunk, UnsupportedVersion
from store.format import checksum
from tests.store.files import encode, read_all, reader

CHAINS = ["raw", "a4-deflate", "a4-zstd", "a5-zstd", "planes-deflate"]


def outcome(file: bytes, expected: KVChunk) -> str:
    try:
        opened = reader(file)
        values = read_all(opened)
        scores = opened.scores()
    except StoreError as error:
        return type(error).__name__
    same = np.array_equal(values, expected.data) and (scores is None or np.array_equal(scores, expected.scores))
    return "same" if same and opened.info == expected.info(opened.info.codec) else "WRONG"


@pytest.fixture(params=CHAINS)
def damaged_case(request: pytest.FixtureRequest, make_chunk: Callable[..., KVChunk]) -> tuple[KVChunk, bytes]:
    chunk = make_chunk(40, scores=np.ones(40, np.float16))
    return chunk, encode(chunk, request.param)


def test_every_truncation_is_found_before_decoding(damaged_case: tuple[KVChunk, bytes]) -> None:
    _, file = damaged_case
    for length in range(len(file)):
        with pytest.raises(TruncatedChunk):
            reader(file[:length])


def test_trailing_bytes_are_found(damaged_case: tuple[KVChunk, bytes]) -> None:
    with pytest.raises(TruncatedChunk):
        reader(damaged_case[1] + b"\0")


def test_every_flipped_header_byte_is_found(damaged_case: tuple[KVChunk, bytes]) -> None:
    chunk, file = damaged_case
    header_bytes = struct.unpack_from("<I", file, 12)[0]
    for offset in range(header_bytes):
        flipped = bytearray(file)
        flipped[offset] ^= 0x40
        assert outcome(bytes(flipped), chunk) not in ("same", "WRONG"), offset


def test_flipped_payload_bits_never_give_wrong_values(damaged_case: tuple[KVChunk, bytes]) -> None:
    chunk, file = damaged_case
    header_bytes = struct.unpack_from("<I", file, 12)[0]
    rng = np.random.default_rng(3)
    for offset in rng.integers(header_bytes, len(file), 1000):
        flipped = bytearray(file)
        flipped[offset] ^= 1 << rng.integers(8)
        assert outcome(bytes(flipped), chunk) in ("CorruptChunk", "same"), offset


def test_almost_all_payload_flips_are_refused(make_chunk: Callable[..., KVChunk]) -> None:
    """Only a gzip member's mtime, flags and OS bytes are free."""
    chunk = make_chunk(40)
    file = encode(chunk)
    header_bytes = struct.unpack_from("<I", file, 12)[0]
    unnoticed = 0
    for offset in range(header_bytes, len(file)):
        flipped = bytearray(file)
        flipped[offset] ^= 1
        unnoticed += outcome(bytes(flipped), chunk) == "same"
    assert unnoticed <= 6 * 8


def with_header(file: bytes, offset: int, form: str, value: int) -> bytes:
    """`file` with one header field replaced and the header's checksum made right again."""
    changed = bytearray(file)
    struct.pack_into(form, changed, offset, value)
    header_bytes = struct.unpack_from("<I", file, 12)[0]
    struct.pack_into("<Q", changed, header_bytes - 8, checksum(bytes(changed[: header_bytes - 8])))
    return bytes(changed)


@pytest.mark.parametrize("offset", [148, 152, 156, 160, 164, 176])
@pytest.mark.parametrize("value", [0, 3, 2**16, 2**31, 2**32 - 1])
def test_hostile_sizes_are_refused(make_chunk: Callable[..., KVChunk], offset: int, value: int) -> None:
    chunk = make_chunk(40)
    file = with_header(encode(chunk), offset, "<I", value)
    assert outcome(file, chunk) in ("CorruptChunk", "TruncatedChunk")


@pytest.mark.parametrize("dtype", [3, 255])
def test_unknown_dtype_is_refused(make_chunk: Callable[..., KVChunk], dtype: int) -> None:
    with pytest.raises(CorruptChunk, match=f"dtype {dtype}"):
        reader(with_header(encode(make_chunk(40)), 144, "<B", dtype))


def test_another_dtype_of_the_same_width_is_not_decoded_as_this_one(make_chunk: Callable[..., KVChunk]) -> None:
    assert outcome(with_header(encode(make_chunk(40)), 144, "<B", 1), make_chunk(40)) == "UnknownCodec"


def test_codec_name_that_is_not_ascii(make_chunk: Callable[..., KVChunk]) -> None:
    with pytest.raises(CorruptChunk, match="not ASCII"):
        reader(with_header(encode(make_chunk(40)), 120, "<B", 0xFF))


def test_lengths_that_hide_each_other(make_chunk: Callable[..., KVChunk]) -> None:
    """Moving a byte from one payload to the next keeps the file's size; the section checks find it."""
    chunk = make_chunk(40)
    file = encode(chunk)
    first = 192 + 16 * 8
    lengths = struct.unpack_from("<2I", file, first)
    moved = with_header(with_header(file, first, "<I", lengths[0] - 1), first + 4, "<I", lengths[1] + 1)
    assert outcome(moved, chunk) == "CorruptChunk"


def test_newer_version_is_named(make_chunk: Callable[..., KVChunk]) -> None:
    with pytest.raises(UnsupportedVersion, match="version 2, expected 1"):
        reader(with_header(encode(make_chunk(40)), 8, "<H", 2))


def test_deflate_bomb_is_stopped_at_the_sections_size(make_chunk: Callable[..., KVChunk]) -> None:
    """A payload may not inflate beyond what its section holds, and the reader allocates no more."""
    import gzip

    from store.deflate import SoftwareDeflate
    from store.errors import CorruptBlob
    from store.member import with_sizes

    bomb = gzip.compress(bytes(10_000_000))
    with pytest.raises(CorruptBlob):
        SoftwareDeflate().decompress_into(memoryview(with_sizes(bomb, 640)), memoryview(bytearray(640)))


@pytest.mark.parametrize("dtype", KVDType)
def test_noise_behind_a_right_header(make_chunk: Callable[..., KVChunk], dtype: KVDType) -> None:
    chunk = make_chunk(40, dtype=dtype)
    chain = "a4-deflate" if dtype is KVDType.BF16 else "planes-deflate"
    file = encode(chunk, chain)
    header_bytes = struct.unpack_from("<I", file, 12)[0]
    rng = np.random.default_rng(5)
    for _ in range(50):
        noise = rng.integers(0, 256, len(file) - header_bytes).astype(np.uint8).tobytes()
        assert outcome(file[:header_bytes] + noise, chunk) == "CorruptChunk"
