"""A new version of a document keeps the passages whose text it keeps."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.passages import PassageMaker
from cascade.revise import split_anew
from cascade.split import Splitter
from cascade.types import MediaType, Passage, SourceText
from tests.cascade.test_passages import DOCUMENT

PARAGRAPHS = [f"Rule {n}. " + f"The clerk of ward {n} files form {n} before noon. " * 6 for n in range(40)]
TEXT = "\n\n".join(PARAGRAPHS)


def make(maker: PassageMaker, text: str, old: list[Passage] | None = None) -> list[Passage]:
    return maker.make(DOCUMENT, SourceText(text), old or [])


def new_keys(maker: PassageMaker, text: str) -> tuple[int, list[Passage]]:
    before = make(maker, TEXT)
    after = make(maker, text, before)
    return len({passage.chunk_key for passage in after} - {passage.chunk_key for passage in before}), after


def test_an_unchanged_text_keeps_every_passage(maker: PassageMaker) -> None:
    assert make(maker, TEXT, make(maker, TEXT)) == make(maker, TEXT)


@pytest.mark.parametrize("at", [0, 20, 39])
def test_a_changed_sentence_costs_the_passage_around_it(maker: PassageMaker, at: int) -> None:
    changed = TEXT.replace(f"files form {at} before", f"burns form {at} after", 1)
    new, after = new_keys(maker, changed)
    assert 1 <= new <= 2
    assert "".join("".join(passage.text.split()) for passage in after) == "".join(changed.split())


@pytest.mark.parametrize("at", [0, 7, 20, 40])
def test_an_inserted_paragraph_costs_itself_and_a_neighbour(maker: PassageMaker, at: int) -> None:
    changed = "\n\n".join([*PARAGRAPHS[:at], "A new rule about lanterns. " * 5, *PARAGRAPHS[at:]])
    new, after = new_keys(maker, changed)
    assert 1 <= new <= 3
    assert all(changed[passage.start : passage.end] == passage.text for passage in after)
    assert max(len(passage.token_ids) for passage in after) <= 300


def test_a_removed_paragraph_costs_what_stood_around_it(maker: PassageMaker) -> None:
    new, _ = new_keys(maker, "\n\n".join(PARAGRAPHS[:10] + PARAGRAPHS[11:]))
    assert new <= 2


def test_another_title_changes_everything(maker: PassageMaker) -> None:
    before = make(maker, TEXT)
    after = maker.make(dataclasses.replace(DOCUMENT, title="Other"), SourceText(TEXT), before)
    assert {passage.chunk_key for passage in before}.isdisjoint(passage.chunk_key for passage in after)


@given(
    old=st.lists(st.text(alphabet="ab .\n", min_size=1, max_size=30), max_size=6),
    text=st.text(alphabet="ab .\n", max_size=200),
)
def test_spans_of_any_revision_are_sound(old: list[str], text: str) -> None:
    at = 0
    for span in split_anew(text, Splitter(len, 30), [piece for piece in old if piece.strip()]):
        assert at <= span.start < span.end
        assert not text[at : span.start].strip()
        assert len(span.of(text)) <= 30
        at = span.end
    assert not text[at:].strip()


def test_pages_and_headings_come_with_passages(maker: PassageMaker) -> None:
    first, second = (
        "# Rules\n\n## Forms\n\n" + PARAGRAPHS[0] * 4,
        "## Fees\n\n```\n# no heading\n```\n\n" + PARAGRAPHS[1] * 4,
    )
    text = f"{first}\n\n{second}"
    markdown = dataclasses.replace(DOCUMENT, media_type=MediaType.PPTX)
    made = maker.make(markdown, SourceText(text, (0, len(first) + 2)))
    assert {(passage.page, passage.heading) for passage in made[1:-1]} <= {(1, "Rules > Forms"), (2, "Rules > Fees")}
    assert (made[0].page, made[0].heading) == (1, "Rules")
    assert (made[-1].page, made[-1].heading) == (2, "Rules > Fees")
    assert maker.make(DOCUMENT, SourceText(text))[0].page is None
