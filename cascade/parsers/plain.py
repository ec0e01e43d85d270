"""Bytes to characters: UTF-8, UTF-16, UTF-32 or a Latin code page."""

import codecs
import re

from cascade.errors import DocumentError, DocumentProblem
from cascade.parsers.extract import Extract

MAX_CONTROL_SHARE = 0.01  # text has next to none; compressed or machine code has 10 % and more

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
# UTF-32 first: its little-endian mark begins with the one of UTF-16.
_BYTE_ORDER_MARKS = [
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]


def parse_plain(content: bytes) -> Extract:
    """The text itself; raises DocumentError for what is no text."""
    return Extract(decode(content))


def decode(content: bytes) -> str:
    """Characters of a text file, stray control characters dropped; raises DocumentError for what is no text."""
    for encoding in _candidate_encodings(content):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if len(_CONTROL.findall(text)) <= MAX_CONTROL_SHARE * len(text):
            return text
    raise DocumentError(DocumentProblem.BINARY, "is binary or in an unknown encoding, not text")


def clean(text: str) -> str:
    """One kind of line end, no control characters, no halves of surrogate pairs (PDF fonts hold some)."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _CONTROL.sub("", whole.replace("\r\n", "\n").replace("\r", "\n"))


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
