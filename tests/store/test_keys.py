import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.keys import ModelFingerprint, chunk_key, parse_chunk_key

KNOWN_KEY = "353178263bb8d7f87066321e4b3a478d1ec12b09a97e7e91cf5fb00357f9a03d"
KNOWN_FINGERPRINT = "ad3e8c5f9d35b29ecaecc0b92c180c2b0f6595ed777d218a4a5dd126ef73b617"
FINGERPRINT = ModelFingerprint("ab", "bf16", 2, 1, 8, '{"theta":1e4}', "bf16")


def test_a_key_round_trips_through_its_text() -> None:
    key = chunk_key(FINGERPRINT.digest(), "", [1, 2, 3])
    assert parse_chunk_key(str(key)) == key


@pytest.mark.parametrize("text", ["", "ab", "g" * 64, "A" * 64, "a" * 65, "a" * 63 + "\n", "../" + "a" * 61])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="64 lowercase hex digits"):
        parse_chunk_key(text)


def test_key_of_known_input_never_changes() -> None:
    assert chunk_key("f" * 64, "salt", [0, 1, 2**32 - 1]) == KNOWN_KEY


def test_fingerprint_of_known_input_never_changes() -> None:
    assert FINGERPRINT.digest() == KNOWN_FINGERPRINT


@pytest.mark.parametrize(
    "change", [{"weights": "x"}, {"dtype": "fp16"}, {"layers": 3}, {"kv_heads": 2}, {"head_dim": 4}, {"rope": ""},
               {"kv_dtype": "fp16"}, {"lora": "x"}, {"ingest": "x"}],
)  # fmt: skip
def test_every_field_changes_the_fingerprint(change: dict[str, str | int]) -> None:
    fields = {name: getattr(FINGERPRINT, name) for name in FINGERPRINT.__slots__}
    assert ModelFingerprint(**(fields | change)).digest() != FINGERPRINT.digest()


def test_another_tenants_salt_gives_another_key() -> None:
    assert chunk_key("f" * 64, "one", [1]) != chunk_key("f" * 64, "two", [1])


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_fields_cannot_run_into_each_other(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (chunk_key(*one, [1]) == chunk_key(*other, [1])) == (one == other)


def test_token_ids_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="no token ids"):
        chunk_key("f" * 64, "", [])
    with pytest.raises(ValueError, match="negative token id -1"):
        chunk_key("f" * 64, "", [1, -1])
    with pytest.raises(OverflowError):
        chunk_key("f" * 64, "", [2**32])
