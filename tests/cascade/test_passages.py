"""Passages carry the token ids of what the model reads, once and for all."""

import dataclasses

import pytest
from tokenizers import Tokenizer

from cascade.passages import PassageMaker, render_passage
from cascade.tokenize import PlainTokenizer
from cascade.types import Document, MediaType, SourceText, Stage
from tests.cascade.conftest import sha_key

TEXT = "\n\n".join(
    f"Paragraph {n} of the rules. Every clerk files form {n} before noon. <|im_end|> Emoji 🎉 and 日本語 too."
    for n in range(120)
)
DOCUMENT = Document(
    id="file-1",
    filename="rules.txt",
    title="The rules",
    media_type=MediaType.TEXT,
    sha256="",
    bytes=0,
    stage=Stage.QUEUED,
    error=None,
    passages=0,
    passages_done=0,
    tokens=0,
    created_at=0,
    updated_at=0,
)


def test_token_ids_are_those_of_the_rendered_passage_alone(maker: PassageMaker, tokenizer: PlainTokenizer) -> None:
    made = maker.make(DOCUMENT, SourceText(TEXT))
    assert len(made) > 10
    for passage in made:
        assert list(passage.token_ids) == tokenizer.encode(f"The rules\n{passage.text}\n\n")
        assert passage.chunk_key == sha_key(passage.token_ids)
        assert len(passage.token_ids) <= 300
        assert tokenizer.control_ids.isdisjoint(passage.token_ids)


def test_offsets_point_into_the_document(maker: PassageMaker) -> None:
    made = maker.make(DOCUMENT, SourceText(TEXT))
    assert all(TEXT[passage.start : passage.end] == passage.text for passage in made)
    assert [passage.ordinal for passage in made] == list(range(len(made)))
    assert len({passage.id for passage in made}) == len(made)


def test_making_twice_gives_the_same(maker: PassageMaker) -> None:
    assert maker.make(DOCUMENT, SourceText(TEXT)) == maker.make(DOCUMENT, SourceText(TEXT))


def test_a_long_title_leaves_room_for_text(maker: PassageMaker) -> None:
    title = "日本🎉" * 40
    made = maker.make(dataclasses.replace(DOCUMENT, title=title), SourceText(TEXT))
    assert max(len(passage.token_ids) for passage in made) <= 300
    assert max(len(passage.text) for passage in made) > 400
    assert title.startswith(made[0].title)


def test_markdown_headings_start_passages(maker: PassageMaker) -> None:
    text = "\n\n".join(f"## Form {n}\n\n" + "The clerk files it before noon on any day. " * 20 for n in range(4))
    markdown = dataclasses.replace(DOCUMENT, media_type=MediaType.MARKDOWN)
    assert [passage.text.split("\n")[0] for passage in maker.make(markdown, SourceText(text))] == [
        f"## Form {n}" for n in range(4)
    ]


def test_passages_joined_by_their_ids_read_as_they_were_rendered(maker: PassageMaker, model_dir: str) -> None:
    raw = Tokenizer.from_file(f"{model_dir}/tokenizer.json")
    made = maker.make(DOCUMENT, SourceText(TEXT))
    ids = [id for passage in made for id in passage.token_ids]
    rendered = "".join(render_passage(passage.title, passage.text) for passage in made)
    assert raw.decode(ids, skip_special_tokens=False) == rendered


@pytest.mark.parametrize(
    "text",
    [
        "日本語の文章です。猫は屋根の上で寝ている。" * 100,
        "🎉👩‍👩‍👧🇩🇪 " * 200,
        "한국어 문장입니다. " * 200,
        "one endless sentence without any stop " * 200,
        "x" * 20_000,
        "<|im_start|>system" * 300,
    ],
    ids=["chinese and japanese", "emoji", "korean", "one sentence", "one word", "control tokens"],
)
def test_any_script_and_any_sentence_is_cut_to_the_limit(maker: PassageMaker, text: str) -> None:
    made = maker.make(DOCUMENT, SourceText(text))
    assert len(made) > 1
    assert max(len(passage.token_ids) for passage in made) <= 300
    assert "".join("".join(passage.text.split()) for passage in made) == "".join(text.split())


def test_a_document_longer_than_the_models_context_is_cut(maker: PassageMaker) -> None:
    text = "\n\n".join(f"Rule {n}: the clerk files form {n} before noon." for n in range(1000))
    made = maker.make(DOCUMENT, SourceText(text))
    assert sum(len(passage.token_ids) for passage in made) > 8192
    assert max(len(passage.token_ids) for passage in made) <= 300


def test_limits_too_small_to_be_useful_are_refused(tokenizer: PlainTokenizer) -> None:
    with pytest.raises(ValueError, match=r"63 tokens.*64"):
        PassageMaker(tokenizer, sha_key, limit=63)
