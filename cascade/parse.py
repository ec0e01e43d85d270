"""Bytes of a file to text."""

import codecs
import re
from dataclasses import dataclass
from pathlib import PurePath

from cascade.errors import DocumentError, DocumentProblem
from cascade.types import MediaType

DEFAULT_MAX_BYTES = 20 * 1024 * 1024
MAX_TITLE_CHARS = 120
MAX_CONTROL_SHARE = 0.01  # text has next to none; compressed or machine code has 10 % and more

_MEDIA_TYPES = {".txt": MediaType.TEXT, ".md": MediaType.MARKDOWN, ".markdown": MediaType.MARKDOWN}
SUPPORTED_SUFFIXES = tuple(sorted(_MEDIA_TYPES))

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_BLANK = re.compile(r"[\s\u200b-\u200d\u2060\ufeff]*")  # zero-width characters are no text either
_HEADING = re.compile(r"^#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
# UTF-32 first: its little-endian mark begins with the one of UTF-16.
_BYTE_ORDER_MARKS = [
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]


@dataclass(frozen=True)
class ParsedDocument:
    """The text of a file, lines ended by line feeds, and the title its passages will carry."""

    title: str
    text: str
    media_type: MediaType


def parse_document(filename: str, content: bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> ParsedDocument:
    """Read a text or markdown file in UTF-8, UTF-16, UTF-32 or a Latin code page.

    Raises DocumentError when the file is of another kind, too large, empty or not text.
    """
    media_type = _media_type(filename)
    if len(content) > max_bytes:
        raise DocumentError(
            DocumentProblem.TOO_LARGE, f"{filename!r} has {len(content):,} bytes, over the limit of {max_bytes:,}"
        )
    text = _decode(filename, content).replace("\r\n", "\n").replace("\r", "\n")
    if _BLANK.fullmatch(text):
        raise DocumentError(DocumentProblem.EMPTY, f"{filename!r} holds no text ({len(content):,} bytes)")
    return ParsedDocument(_title(filename, text, media_type), text, media_type)


def _media_type(filename: str) -> MediaType:
    suffix = PurePath(filename).suffix.lower()
    try:
        return _MEDIA_TYPES[suffix]
    except KeyError:
        supported = ", ".join(SUPPORTED_SUFFIXES)
        raise DocumentError(
            DocumentProblem.UNSUPPORTED, f"{filename!r} is of kind {suffix!r}; supported kinds are {supported}"
        ) from None


def _decode(filename: str, content: bytes) -> str:
    for encoding in _candidate_encodings(content):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if len(_CONTROL.findall(text)) <= MAX_CONTROL_SHARE * len(text):
            return _CONTROL.sub("", text)
    raise DocumentError(DocumentProblem.BINARY, f"{filename!r} is binary or in an unknown encoding, not text")


def _candidate_encodings(content: bytes) -> list[str]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return [encoding]
    # UTF-16 without its mark shows as a zero in every other byte of Western text.
    if content[:2000:2].count(0) > content[1:2000:2].count(0):
        return ["utf-8", "utf-16-be", "cp1252", "latin-1"]
    if 0 in content[:2000]:
        return ["utf-8", "utf-16-le", "cp1252", "latin-1"]
    return ["utf-8", "cp1252", "latin-1"]


def _title(filename: str, text: str, media_type: MediaType) -> str:
    heading = _HEADING.search(text) if media_type is MediaType.MARKDOWN else None
    title = heading.group(1) if heading else re.sub(r"[_-]+", " ", PurePath(filename).stem)
    return " ".join(title.split())[:MAX_TITLE_CHARS].rstrip()
