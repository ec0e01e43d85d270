from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from store import KVChunk, KVDType, KVLayout, chunk_key
from store.codec import chain_names
from store.format import block_count
from tests.store.conftest import FINGERPRINT, gaussian
from tests.store.files import encode, read_all, reader

CHAINS_BY_DTYPE = [
    (chain, dtype)
    for dtype in KVDType
    for chain in chain_names()
    if dtype is KVDType.BF16 or not chain.startswith(("a4", "a5"))
]


def chunk_of(data: np.ndarray[Any, Any], dtype: KVDType) -> KVChunk:
    layers, _, kv_heads, _, head_dim = data.shape
    layout = KVLayout(layers, kv_heads, head_dim, dtype)
    return KVChunk(chunk_key(FINGERPRINT, "", [1]), FINGERPRINT, layout, 0, data)


@pytest.mark.parametrize(("chain", "dtype"), CHAINS_BY_DTYPE)
@pytest.mark.parametrize("tokens", [1, 255, 257, 384, 700])
def test_every_chain_is_exact(chain: str, dtype: KVDType, tokens: int) -> None:
    chunk = chunk_of(gaussian(KVLayout(2, 3, 16, dtype), tokens), dtype)
    opened = reader(encode(chunk, chain))
    assert opened.info == chunk.info(chain)
    np.testing.assert_array_equal(read_all(opened), chunk.data)


@pytest.mark.parametrize(("chain", "dtype"), CHAINS_BY_DTYPE)
def test_planes_of_several_streams_are_exact(chain: str, dtype: KVDType) -> None:
    data = gaussian(KVLayout(1, 1, 300, dtype), 384)
    np.testing.assert_array_equal(read_all(reader(encode(chunk_of(data, dtype), chain))), data)


def test_an_exponent_just_below_a_wrapped_base_is_exact() -> None:
    """Base 2 and exponent 255 differ by 3 modulo 256, which must not pass for a code."""
    data = np.full((1, 2, 1, 40, 4), 2 << 7, np.uint16)
    data[..., 3, 1] = 0xFF80
    data[..., 4, 1] = 0x7FC1
    np.testing.assert_array_equal(read_all(reader(encode(chunk_of(data, KVDType.BF16)))), data)


@st.composite
def bit_patterns(draw: st.DrawFn) -> tuple[KVDType, np.ndarray[Any, Any]]:
    dtype = draw(st.sampled_from(KVDType))
    shape = (draw(st.integers(1, 2)), 2, draw(st.integers(1, 3)), draw(st.integers(1, 40)), draw(st.integers(1, 9)))
    special = [0, 1, 0x7F80, 0xFF80, 0x7FC0, 0x8000, 0xFFFF, 0x3F80, 0x7C00]
    top = 2 ** (8 * dtype.bits.itemsize) - 1
    element = st.one_of(st.sampled_from(special), st.integers(0, top))
    return dtype, draw(arrays(dtype.bits, shape, elements=element))


@settings(deadline=None, max_examples=60)
@given(bit_patterns())
def test_any_bits_are_exact_in_every_chain(case: tuple[KVDType, np.ndarray[Any, Any]]) -> None:
    dtype, data = case
    for chain in (chain for chain, carried in CHAINS_BY_DTYPE if carried is dtype):
        np.testing.assert_array_equal(read_all(reader(encode(chunk_of(data, dtype), chain))), data)


@pytest.mark.parametrize("chain", chain_names())
def test_random_bits_do_not_grow_beyond_the_header(chain: str) -> None:
    data = np.random.default_rng(0).integers(0, 2**16, (2, 2, 2, 300, 32)).astype(np.uint16)
    file = encode(chunk_of(data, KVDType.BF16), chain)
    np.testing.assert_array_equal(read_all(reader(file)), data)
    assert len(file) <= data.nbytes + 200 + 12 * 8 + 2 * 2 * 2 * 32


@pytest.mark.parametrize("chain", ["a4-deflate", "a4-zstd", "planes-deflate"])
def test_constant_data_shrinks_to_little(chain: str) -> None:
    data = np.full((2, 2, 2, 300, 32), 0x3F80, np.uint16)
    assert len(encode(chunk_of(data, KVDType.BF16), chain)) < 0.3 * data.nbytes


def test_strided_input_and_output(make_chunk: Callable[..., KVChunk]) -> None:
    whole = make_chunk(300)
    token_major = np.ascontiguousarray(whole.data.transpose(0, 1, 3, 2, 4))
    opened = reader(encode(make_chunk(300, data=token_major.transpose(0, 1, 3, 2, 4))))
    context = np.zeros((2, 310, 2, 8), np.uint16)
    k_out, v_out = (context[which, 5:305].transpose(1, 0, 2) for which in range(2))
    opened.read_layer(1, k_out, v_out)
    np.testing.assert_array_equal(context[:, 5:305], token_major[1])
    assert not context[:, :5].any()
    assert not context[:, 305:].any()


@pytest.mark.parametrize("heads", [range(0, 1), range(1, 4), range(4, 5), range(0, 5)])
def test_a_run_of_heads_reads_alone(heads: range) -> None:
    data = gaussian(KVLayout(2, 5, 16, KVDType.BF16), 300)
    opened = reader(encode(chunk_of(data, KVDType.BF16)))
    np.testing.assert_array_equal(read_all(opened, heads), data[:, :, heads.start : heads.stop])


def test_many_heads_are_read_in_groups() -> None:
    data = gaussian(KVLayout(1, 9, 128, KVDType.BF16), 256)
    np.testing.assert_array_equal(read_all(reader(encode(chunk_of(data, KVDType.BF16)))), data)


def test_scores_and_predecessor_are_kept(make_chunk: Callable[..., KVChunk]) -> None:
    scores = np.linspace(0, 1, 20).astype(np.float16)
    opened = reader(encode(make_chunk(20, scores=scores, predecessor="1" * 64)))
    assert opened.info.predecessor == "1" * 64
    np.testing.assert_array_equal(opened.scores(), scores)
    assert reader(encode(make_chunk(20))).scores() is None


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (256, 1), (383, 1), (385, 2), (512, 2), (3000, 12)])
def test_blocks_are_balanced(tokens: int, blocks: int) -> None:
    assert block_count(tokens) == blocks


def test_wrong_requests_are_refused(make_chunk: Callable[..., KVChunk]) -> None:
    opened = reader(encode(make_chunk(20)))
    good = np.zeros((2, 20, 8), np.uint16)
    with pytest.raises(ValueError, match="layer 2: the chunk has 2"):
        opened.read_layer(2, good, good)
    with pytest.raises(ValueError, match="expected a run within 2"):
        opened.read_layer(0, good, good, heads=range(1, 3))
    with pytest.raises(ValueError, match=r"v_out: uint16\(2, 19, 8\)"):
        opened.read_layer(0, good, good[:, 1:])
    with pytest.raises(ValueError, match="k_out: float32"):
        opened.read_layer(0, good.astype(np.float32), good)
    opened.close()
    with pytest.raises(ValueError, match="closed"):
        opened.read_layer(0, good, good)
