"""Many streams at a call do what one at a time does, byte for byte and damage for damage."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from store import KVChunk, KVDType, KVLayout, isal_abi
from store.codec import Codecs
from store.codecs import isal_batch as batch_module
from store.codecs.isal_batch import IsalBatch, isal_batch
from store.codecs.streams import StreamCoder
from store.codecs.zstd import Zstd
from store.deflate import SoftwareDeflate
from store.errors import CorruptBlob, IsalUnavailable
from store.member import HEADER_BYTES, STREAM_BYTES
from store.reader import ChunkReader
from store.source import BytesSource
from store.writer import encode_chunk

RNG = np.random.default_rng(0)
CODES = RNG.geometric(0.4, STREAM_BYTES).astype(np.uint8)
NOISE = RNG.integers(0, 256, STREAM_BYTES).astype(np.uint8)
KINDS = {
    "codes": CODES,
    "noise": NOISE,
    "zeros": np.zeros(STREAM_BYTES, np.uint8),
    "both": np.where(CODES > 3, NOISE, 7),
}
SIZES = st.one_of(st.integers(0, 300), st.integers(0, STREAM_BYTES), st.just(STREAM_BYTES))


def one_by_one() -> SoftwareDeflate:
    return SoftwareDeflate(batches=lambda: IsalUnavailable("ISA-L: not today"))


def spans_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    edges = np.cumsum([0, *sizes])
    return np.stack((edges[:-1], edges[1:]), axis=1)


def packed(coder: StreamCoder, streams: Sequence[NDArray[np.uint8]]) -> list[bytes]:
    source = np.concatenate(streams)
    return [bytes(member) for member in coder.compress_many(source, spans_of([stream.size for stream in streams]))]


def unpacked(coder: StreamCoder, members: Sequence[bytes], sizes: Sequence[int]) -> bytes:
    out = np.full(sum(sizes), 0xA5, np.uint8)
    source = np.frombuffer(b"".join(members), np.uint8)
    coder.decompress_many(source, spans_of([len(member) for member in members]), out, spans_of(sizes))
    return out.tobytes()


def test_this_machine_has_batches() -> None:
    assert isinstance(isal_batch(), IsalBatch)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), SIZES), min_size=1, max_size=6))
def test_a_batch_is_its_streams_one_by_one(streams: list[tuple[str, int]]) -> None:
    data = [KINDS[kind][:size].astype(np.uint8) for kind, size in streams]
    sizes = [size for _, size in streams]
    batched, single = SoftwareDeflate(), one_by_one()
    members = packed(batched, data)
    assert members == packed(single, data)
    expected = b"".join(stream.tobytes() for stream in data)
    assert unpacked(batched, members, sizes) == unpacked(single, members, sizes) == expected
    assert batched.counters.snapshot() == {"sw_calls": 2 * len(streams)}


def test_zstd_batches_too() -> None:
    members = packed(Zstd(), [CODES, CODES[:0], NOISE[:77]])
    assert unpacked(Zstd(), members, [STREAM_BYTES, 0, 77]) == CODES.tobytes() + NOISE[:77].tobytes()


def test_no_streams_at_all() -> None:
    none = np.empty((0, 2), np.int64)
    assert SoftwareDeflate().compress_many(CODES, none) == []
    SoftwareDeflate().decompress_many(CODES, none, NOISE.copy(), none)


def test_more_than_a_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="65537 bytes, expected at most 65536"):
        packed(SoftwareDeflate(), [CODES[:9], np.zeros(STREAM_BYTES + 1, np.uint8)])


def test_a_damaged_member_between_good_ones_is_named() -> None:
    members = packed(SoftwareDeflate(), [CODES[:500], CODES[500:1500], NOISE[:70]])
    members[1] = members[1][:40] + bytes([members[1][40] ^ 8]) + members[1][41:]
    messages = []
    for coder in (SoftwareDeflate(), one_by_one()):
        with pytest.raises(CorruptBlob, match="gzip member") as raised:
            unpacked(coder, members, [500, 1000, 70])
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def judgements(member: bytes, size: int) -> tuple[bool, bool]:
    """Whether a batch takes a member, and whether the one-stream verb does; neither writes beyond its target."""
    batch = isal_batch()
    assert isinstance(batch, IsalBatch)
    source = np.frombuffer(member, np.uint8)
    out = np.full(size + 1000, 0xA5, np.uint8)
    done = batch.decompress(source, spans_of([len(member)]), out, spans_of([size]))
    assert (out[size:] == 0xA5).all()
    try:
        SoftwareDeflate().decompress_into(source.data, out[:size].copy().data)
    except CorruptBlob:
        return bool(done[0]), False
    return bool(done[0]), True


def test_batch_and_single_agree_on_every_flipped_bit() -> None:
    member = packed(SoftwareDeflate(), [CODES[:500]])[0]
    for offset in range(len(member)):
        for bit in range(8):
            flipped = bytearray(member)
            flipped[offset] ^= 1 << bit
            batched, single = judgements(bytes(flipped), 500)
            assert batched == single, (offset, bit)


def resized(member: bytes, deflated: bytes) -> bytes:
    """`member` with another deflate stream and a header that states its length."""
    header = member[: HEADER_BYTES - 4] + len(deflated).to_bytes(4, "little")
    return header + deflated + member[-8:]


def test_batch_and_single_agree_on_lengths() -> None:
    member = packed(SoftwareDeflate(), [CODES[:500]])[0]
    deflated = member[HEADER_BYTES:-8]
    cut = [resized(member, deflated[:length]) for length in range(len(deflated))]
    longer = [resized(member, deflated + bytes(count)) for count in (1, 2, 8, 9, 100)]
    for changed in (*cut, *longer, *(member[:length] for length in range(len(member))), member + b"\0"):
        assert judgements(changed, 500) == (False, False)
    for size in (0, 1, 499, 501, 10_000):
        assert judgements(member, size) == (False, False)
    assert judgements(member, 500) == (True, True)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=400), st.integers(0, 2000))
def test_noise_in_place_of_a_deflate_stream(noise: bytes, size: int) -> None:
    member = packed(SoftwareDeflate(), [CODES[:size]])[0]
    assert judgements(resized(member, noise), size) == (False, False)


def test_without_batches_the_reason_and_a_counter_say_so() -> None:
    coder = one_by_one()
    assert coder.reason == "software requested"
    packed(coder, [CODES[:10], CODES[:20]])
    assert coder.reason == "software requested; streams one by one, ISA-L: not today"
    assert coder.counters.snapshot() == {"batch_fallbacks": 1, "sw_calls": 2}


def test_a_wheel_without_the_functions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isal_abi, "SYMBOLS", (*isal_abi.SYMBOLS, "isal_moved"))
    found = isal_batch.__wrapped__()
    assert isinstance(found, IsalUnavailable)
    assert "isal_moved" in str(found)


def test_functions_that_do_something_else_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "with_sizes", lambda member, size: member)
    found = isal_batch.__wrapped__()
    assert isinstance(found, IsalUnavailable)
    assert "deflate does not do" in str(found)


@pytest.mark.parametrize("chain", ["a4-deflate", "a4-zstd", "a5-zstd"])
@pytest.mark.parametrize("tokens", [1, 300, 301, 1025])
def test_sections_of_several_streams(make_chunk: Callable[..., KVChunk], chain: str, tokens: int) -> None:
    """Up to 77,056 bytes a plane; heads of noise make payloads that are stored as they are, between coded ones."""
    layout = KVLayout(layers=1, kv_heads=3, head_dim=256, dtype=KVDType.BF16)
    chunk = make_chunk(tokens, layout=layout)
    chunk.data[0, :, 1] = RNG.integers(0, 1 << 16, chunk.data[0, :, 1].shape)
    files = []
    for codecs in (Codecs(SoftwareDeflate()), Codecs(one_by_one())):
        encoded = encode_chunk(chunk, chain, codecs.get(chain, KVDType.BF16))
        files.append(b"".join(encoded.parts))
        with ChunkReader(BytesSource(memoryview(files[-1])), codecs) as reader:
            np.testing.assert_array_equal(reader.read(), chunk.data)
    assert files[0] == files[1]
