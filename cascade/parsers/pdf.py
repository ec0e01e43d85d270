"""PDF to text, page by page."""

import io
import re
from typing import TYPE_CHECKING

from cascade.errors import DocumentError, DocumentProblem
from cascade.parsers.extract import Extract

if TYPE_CHECKING:
    from pypdf import PdfReader

FULL_LINE = 0.7  # of a page's longest line: what reaches further was broken by the page's width, not by its author
_FILE_LIKE = re.compile(r"\.\w{2,4}$|^untitled|^microsoft word", re.IGNORECASE)  # titles that programs leave


def parse_pdf(content: bytes) -> Extract:
    """Text of every page in reading order, lines of a paragraph joined."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(content))
    _unlock(reader)
    pages = [_unwrap(page.extract_text()) for page in reader.pages]
    if not any(page.strip() for page in pages):
        raise DocumentError(
            DocumentProblem.NO_TEXT, f"has {len(pages)} pages but no text: if it holds pictures of text, run OCR on it"
        )
    return Extract.of_pages(pages, _title(reader))


def _unlock(reader: "PdfReader") -> None:
    """Open what needs no password: files that are only protected against changes."""
    from pypdf.errors import DependencyError

    if not reader.is_encrypted:
        return
    try:
        opened = bool(reader.decrypt(""))
    except DependencyError:
        opened = False
    if not opened:
        raise DocumentError(DocumentProblem.ENCRYPTED, "is encrypted: save it without a password first")


def _title(reader: "PdfReader") -> str:
    stated = reader.metadata.title if reader.metadata else None
    title = stated.strip() if isinstance(stated, str) else ""
    return "" if _FILE_LIKE.search(title) else title


def _unwrap(page: str) -> str:
    """Join the lines of a paragraph, so that sentences are whole."""
    lines = [line.strip() for line in page.split("\n")]
    full = FULL_LINE * max(map(len, lines))
    text = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        soft = bool(line and following) and (len(line) >= full or following[0].islower())
        if soft and re.search(r"[^\W\d_]-$", line) and following[0].islower():
            text += line[:-1]
        else:
            text += line + (" " if soft else "\n")
    return text.strip()
