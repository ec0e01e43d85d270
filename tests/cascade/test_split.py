"""Spans end where sentences end, keep the limit and lose nothing but white space."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.parsers.tables import markdown_table
from cascade.split import REGION_CHARS, Splitter

SENTENCES = [f"Sentence number {n} says one thing about topic {n % 7}." for n in range(200)]


def words(text: str) -> int:
    return len(text.split())


def spans_of(splitter: Splitter, text: str) -> list[str]:
    return [span.of(text) for span in splitter.split(text)]


@given(
    text=st.text(alphabet=st.sampled_from("ab .。\n#-é日🎉\t"), max_size=400),
    limit=st.integers(4, 60),
    markdown=st.booleans(),
)
def test_spans_keep_the_limit_and_lose_only_white_space(text: str, limit: int, markdown: bool) -> None:
    spans = Splitter(len, limit, markdown).split(text)
    at = 0
    for span in spans:
        assert not text[at : span.start].strip()
        assert 0 < len(span.of(text)) <= limit
        assert span.of(text).strip()
        at = span.end
    assert not text[at:].strip()


def test_sentences_stay_whole() -> None:
    pieces = spans_of(Splitter(words, 50), " ".join(SENTENCES))
    assert len(pieces) > 20
    assert all(piece.startswith("Sentence") and piece.endswith(".") for piece in pieces)


def test_spans_are_well_filled() -> None:
    pieces = spans_of(Splitter(words, 50), " ".join(SENTENCES))
    assert min(map(words, pieces)) >= 25


def test_markdown_is_cut_at_headings() -> None:
    text = "\n\n".join(f"## Part {n}\n\n" + " ".join(SENTENCES[n : n + 5]) for n in range(6))
    pieces = spans_of(Splitter(words, 60, markdown=True), text)
    assert [piece.split("\n")[0] for piece in pieces] == [f"## Part {n}" for n in range(6)]


@pytest.mark.parametrize("sentences", range(7, 30))
def test_no_tiny_tail(sentences: int) -> None:
    pieces = spans_of(Splitter(words, 50), " ".join(SENTENCES[:sentences]))
    assert words(pieces[-1]) >= 50 / 4


def test_tiny_sections_are_joined() -> None:
    text = "\n\n".join(f"# {letter}\n\nShort." for letter in "ABCDEFGH")
    assert len(spans_of(Splitter(words, 50, markdown=True), text)) == 1


def test_a_heading_is_not_left_alone_before_a_full_section() -> None:
    text = "# Title\n\n" + " ".join(SENTENCES[:6]) + "\n\n" + " ".join(SENTENCES[6:12])
    pieces = spans_of(Splitter(words, 97, markdown=True), text)
    assert min(map(words, pieces)) > 20


@pytest.mark.parametrize("markdown", [False, True])
def test_long_texts_are_cut_between_sentences_everywhere(markdown: bool) -> None:
    text = " ".join(SENTENCES * 20)
    assert len(text) > 5 * REGION_CHARS
    pieces = spans_of(Splitter(words, 100, markdown), text)
    assert all(piece.startswith("Sentence") and piece.endswith(".") for piece in pieces)
    assert re.sub(r"\s+", " ", " ".join(pieces)) == text


def test_text_without_any_break_is_still_cut() -> None:
    pieces = spans_of(Splitter(len, 1000), "x" * (2 * REGION_CHARS + 10))
    assert "".join(pieces) == "x" * (2 * REGION_CHARS + 10)
    assert max(map(len, pieces)) <= 1000


@pytest.mark.parametrize("text", ["", " \n\n\t "])
def test_blank_text_has_no_spans(text: str) -> None:
    assert Splitter(len, 10).split(text) == []


@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.parametrize("limit", [120, 400])
def test_table_rows_stay_whole(markdown: bool, limit: int) -> None:
    rows = [["name", "remark"], *([f"row {n}", "Two words. " * (n % 7)] for n in range(300))]
    table = markdown_table(rows)
    pieces = spans_of(Splitter(len, limit, markdown), table)
    assert len(pieces) > 20
    lines = [line for piece in pieces for line in piece.split("\n") if line]
    assert lines == [line for line in table.split("\n") if line]
