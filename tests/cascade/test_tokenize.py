"""Document text never becomes control tokens, and loses nothing."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from cascade.errors import TokenizerError
from cascade.tokenize import PlainTokenizer

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<file_sep>"]
ANY_TEXT = st.text(max_size=8)
hostile_text = st.lists(st.one_of(st.sampled_from(CONTROL), ANY_TEXT)).map("".join)
# The model's vocabulary lacks some control bytes and the lead bytes of unassigned planes.
PRINTED_TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=("C",)), max_size=8)
printed_hostile_text = st.lists(st.one_of(st.sampled_from([*CONTROL, "🎉\n"]), PRINTED_TEXT)).map("".join)


@pytest.fixture(scope="module")
def raw(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


@given(text=hostile_text)
def test_no_text_gives_a_control_token(tokenizer: PlainTokenizer, text: str) -> None:
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode(text))


@given(text=printed_hostile_text)
def test_ids_decode_to_the_same_text(tokenizer: PlainTokenizer, raw: Tokenizer, text: str) -> None:
    assert raw.decode(tokenizer.encode(text), skip_special_tokens=False) == text


def test_what_a_model_wrote_is_decoded_without_its_control_tokens(tokenizer: PlainTokenizer, raw: Tokenizer) -> None:
    end_of_turn = raw.token_to_id("<|im_end|>")
    assert tokenizer.decode([*tokenizer.encode(" seven bridges"), end_of_turn]) == " seven bridges"


def test_the_ordinary_tokenizer_would_be_fooled(tokenizer: PlainTokenizer, raw: Tokenizer) -> None:
    end_of_turn = raw.token_to_id("<|im_end|>")
    assert raw.encode("a<|im_end|>b").ids.count(end_of_turn) == 1
    assert end_of_turn in tokenizer.control_ids
    assert len(tokenizer.encode("<|im_end|>")) > 1


@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<"), max_size=60))
def test_text_without_control_strings_is_encoded_as_always(
    tokenizer: PlainTokenizer, raw: Tokenizer, text: str
) -> None:
    assert tokenizer.encode(text) == raw.encode(text, add_special_tokens=False).ids


def test_added_tokens_that_are_not_marked_special_are_plain_text_too(raw: Tokenizer) -> None:
    spec = json.loads(raw.to_str())
    spec["added_tokens"].append(
        {"id": 49152, "content": "<think>", "special": False, "single_word": False}
        | dict.fromkeys(("lstrip", "rstrip", "normalized"), False)
    )
    thinking = Tokenizer.from_str(json.dumps(spec))
    assert thinking.encode("<think>").ids == [49152]
    assert PlainTokenizer(thinking).encode("<think>") == raw.encode("<think>").ids


@given(text=st.text(max_size=60), limit=st.integers(0, 20))
def test_clip_keeps_a_beginning_within_the_limit(tokenizer: PlainTokenizer, text: str, limit: int) -> None:
    clipped = tokenizer.clip(text, limit)
    assert text.startswith(clipped)
    assert tokenizer.count(clipped) <= limit or tokenizer.count(text) <= limit
    if tokenizer.count(text) <= limit:
        assert clipped == text


def test_one_tokenizer_serves_many_threads(tokenizer: PlainTokenizer) -> None:
    texts = [f"Sentence number {n}, <|im_end|> included." * 20 for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == [tokenizer.encode(text) for text in texts]


def test_a_folder_without_a_fast_tokenizer_is_refused(model_dir: Path, tmp_path: Path) -> None:
    shutil.copy(model_dir / "config.json", tmp_path)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        PlainTokenizer.from_folder(tmp_path)


def test_a_vocabulary_that_spells_out_control_tokens_is_refused(raw: Tokenizer) -> None:
    spec = json.loads(raw.to_str())
    spec["model"]["ignore_merges"] = True  # whole words are looked up, and this vocabulary lists "<|im_end|>"
    spec["pre_tokenizer"]["use_regex"] = False
    with pytest.raises(TokenizerError, match="control tokens"):
        PlainTokenizer(Tokenizer.from_str(json.dumps(spec))).encode("<|im_end|>")
