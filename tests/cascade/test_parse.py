"""Files as people have them become text, or a clear refusal."""

import os
import zlib

import pytest

from cascade.errors import DocumentError, DocumentProblem
from cascade.parse import MAX_TITLE_CHARS, parse_document
from cascade.types import MediaType

GREETING = "Grüße aus Köln – déjà vu"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"]
)
def test_encodings(encoding: str) -> None:
    text = GREETING if encoding != "latin-1" else GREETING.replace("–", "-")
    assert parse_document("a.txt", text.encode(encoding)).text == text


def test_utf16_of_another_script_by_its_mark() -> None:
    assert parse_document("a.txt", "日本語の文章".encode("utf-16")).text == "日本語の文章"


def test_line_ends_are_one_kind() -> None:
    assert parse_document("a.txt", b"one\r\ntwo\rthree\n").text == "one\ntwo\nthree\n"


def test_stray_control_characters_are_dropped_and_tabs_kept() -> None:
    assert parse_document("a.txt", b"a\tb" + b"word " * 100 + b"\x00").text == "a\tb" + "word " * 100


@pytest.mark.parametrize(
    ("filename", "text", "title"),
    [
        ("notes.md", "intro\n\n# The  Title #\n\n# Second", "The Title"),
        ("my-notes_v2.md", "## Only a section", "my notes v2"),
        ("my-notes.txt", "# not a heading", "my notes"),
        ("dir/a b.TXT", "text", "a b"),
        ("x.md", "# " + "long " * 100, ("long " * 100)[:MAX_TITLE_CHARS].rstrip()),
    ],
)
def test_title(filename: str, text: str, title: str) -> None:
    assert parse_document(filename, text.encode()).title == title


def test_media_type_follows_the_name() -> None:
    assert parse_document("a.MD", b"x").media_type is MediaType.MARKDOWN
    assert parse_document("a.txt", b"x").media_type is MediaType.TEXT


@pytest.mark.parametrize(
    ("filename", "content", "code", "names"),
    [
        ("empty.txt", b"", DocumentProblem.EMPTY, "empty.txt"),
        ("blank.md", b" \n\t\r\n  ", DocumentProblem.EMPTY, "blank.md"),
        ("blank.txt", "\ufeff \n".encode("utf-16"), DocumentProblem.EMPTY, "blank.txt"),
        ("big.txt", b"x" * 1001, DocumentProblem.TOO_LARGE, "1,001 bytes, over the limit of 1,000"),
        ("photo.png", b"x", DocumentProblem.UNSUPPORTED, ".docx, .htm, .html, .markdown, .md, .pdf"),
        ("README", b"x", DocumentProblem.UNSUPPORTED, ".docx, .htm, .html, .markdown, .md, .pdf"),
        ("zip.txt", zlib.compress(os.urandom(600)), DocumentProblem.BINARY, "zip.txt"),
        ("png.txt", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01", DocumentProblem.BINARY, "png.txt"),
        ("zeros.txt", bytes(500), DocumentProblem.BINARY, "zeros.txt"),
    ],
)
def test_refusals_name_the_reason(filename: str, content: bytes, code: DocumentProblem, names: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(filename, content, max_bytes=1000)
    assert caught.value.code is code
    assert names in str(caught.value)


def test_random_bytes_are_never_text() -> None:
    for size in (300, 3000, 30_000):
        with pytest.raises(DocumentError):
            parse_document("junk.txt", os.urandom(size))
