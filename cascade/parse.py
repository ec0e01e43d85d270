"""A file of any supported kind to text."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from cascade.errors import DocumentError, DocumentProblem
from cascade.parsers.extract import Extract
from cascade.parsers.html import parse_html
from cascade.parsers.office import parse_docx, parse_pptx, parse_xlsx
from cascade.parsers.pdf import parse_pdf
from cascade.parsers.plain import clean, parse_plain
from cascade.parsers.tables import parse_csv
from cascade.types import MediaType

DEFAULT_MAX_BYTES = 20 * 1024 * 1024
MAX_TITLE_CHARS = 120

_MEDIA_TYPES = {
    ".txt": MediaType.TEXT,
    ".md": MediaType.MARKDOWN,
    ".markdown": MediaType.MARKDOWN,
    ".html": MediaType.HTML,
    ".htm": MediaType.HTML,
    ".pdf": MediaType.PDF,
    ".docx": MediaType.DOCX,
    ".pptx": MediaType.PPTX,
    ".xlsx": MediaType.XLSX,
    ".csv": MediaType.CSV,
}
SUPPORTED_SUFFIXES = tuple(sorted(_MEDIA_TYPES))

_PARSERS: dict[MediaType, Callable[[bytes], Extract]] = {
    MediaType.TEXT: parse_plain,
    MediaType.MARKDOWN: parse_plain,
    MediaType.HTML: parse_html,
    MediaType.PDF: parse_pdf,
    MediaType.DOCX: parse_docx,
    MediaType.PPTX: parse_pptx,
    MediaType.XLSX: parse_xlsx,
    MediaType.CSV: parse_csv,
}
_BLANK = re.compile(r"[\s\u200b-\u200d\u2060\ufeff]*")  # zero-width characters are no text either
_HEADING = re.compile(r"^#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class ParsedDocument:
    """The text of a file, lines ended by line feeds, and the title its passages will carry.

    `page_starts` holds the offset of each page (slide) in the text; empty for kinds without pages.
    """

    title: str
    text: str
    media_type: MediaType
    page_starts: tuple[int, ...] = ()


def check_file(filename: str, size: int, max_bytes: int = DEFAULT_MAX_BYTES) -> MediaType:
    """Kind of a file by its name; DocumentError when it is not supported, too large or without a byte."""
    suffix = PurePath(filename).suffix.lower()
    if suffix not in _MEDIA_TYPES:
        raise DocumentError(
            DocumentProblem.UNSUPPORTED,
            f"{filename!r} is of kind {suffix!r}; supported kinds are {', '.join(SUPPORTED_SUFFIXES)}",
        )
    if size > max_bytes:
        raise DocumentError(
            DocumentProblem.TOO_LARGE, f"{filename!r} has {size:,} bytes, over the limit of {max_bytes:,}"
        )
    if size == 0:
        raise DocumentError(DocumentProblem.EMPTY, f"{filename!r} is empty (0 bytes)")
    return _MEDIA_TYPES[suffix]


def parse_document(filename: str, content: bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> ParsedDocument:
    """Read a file of a supported kind; blocks, for large files for seconds.

    Raises DocumentError, and nothing else, for whatever is wrong with the file.
    """
    media_type = check_file(filename, len(content), max_bytes)
    try:
        extract = _PARSERS[media_type](content)
    except DocumentError as error:
        raise DocumentError(error.code, f"{filename!r} {error}") from error
    except Exception as error:  # the libraries below raise all kinds for a damaged file
        reason = f"{filename!r} cannot be read as {media_type} ({type(error).__name__}: {error})"
        raise DocumentError(DocumentProblem.BROKEN, reason[:500]) from error
    text = clean(extract.text)
    if _BLANK.fullmatch(text):
        raise DocumentError(DocumentProblem.EMPTY, f"{filename!r} holds no text ({len(content):,} bytes)")
    return ParsedDocument(_title(filename, extract, text, media_type), text, media_type, extract.page_starts)


def _title(filename: str, extract: Extract, text: str, media_type: MediaType) -> str:
    heading = _HEADING.search(text) if media_type.is_markdown else None
    stem = re.sub(r"[_-]+", " ", PurePath(filename).stem)
    title = clean(extract.title).strip() or (heading.group(1) if heading else stem)
    return " ".join(title.split())[:MAX_TITLE_CHARS].rstrip()
