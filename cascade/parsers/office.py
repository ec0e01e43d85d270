"""Office files (docx, pptx, xlsx) to markdown."""

import io
import re
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from cascade.errors import DocumentError, DocumentProblem
from cascade.parsers.extract import Extract
from cascade.parsers.tables import markdown_table

if TYPE_CHECKING:
    from markitdown import DocumentConverter

MAX_EXPANDED_BYTES = 256 * 2**20
MAX_ENTRIES = 10_000

_OLE = bytes.fromhex("D0CF11E0A1B11AE1")  # the container of encrypted and of old binary Office files
_SLIDE = re.compile(r"\s*<!-- Slide number: \d+ -->\n?")


def parse_docx(content: bytes) -> Extract:
    """Headings, paragraphs, lists and tables."""
    from markitdown.converters import DocxConverter

    _check_archive(content)
    return Extract(_convert(DocxConverter, content))


def parse_pptx(content: bytes) -> Extract:
    """Slides as pages, with their tables and notes."""
    from markitdown.converters import PptxConverter

    _check_archive(content)
    return Extract.of_pages([slide.strip() for slide in _SLIDE.split(_convert(PptxConverter, content))[1:]])


def parse_xlsx(content: bytes) -> Extract:
    """Every sheet as a table of the values last computed, under the sheet's name."""
    from openpyxl import load_workbook

    _check_archive(content)
    workbook = load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    tables = ((sheet.title, markdown_table(sheet.iter_rows(values_only=True))) for sheet in workbook.worksheets)
    return Extract("\n\n".join(f"## {title}\n\n{table}" for title, table in tables if table))


def _convert(converter: "Callable[[], DocumentConverter]", content: bytes) -> str:
    from markitdown import StreamInfo

    return converter().convert(io.BytesIO(content), StreamInfo()).markdown


def _check_archive(content: bytes) -> None:
    """Refuse what would not unpack, or would unpack to far more than anybody writes."""
    if content.startswith(_OLE):
        raise DocumentError(
            DocumentProblem.ENCRYPTED, "is encrypted or in the old binary format: save it anew without a password"
        )
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
    expanded = sum(entry.file_size for entry in entries)
    if expanded > MAX_EXPANDED_BYTES or len(entries) > MAX_ENTRIES:
        raise DocumentError(
            DocumentProblem.BOMB,
            f"unpacks to {expanded:,} bytes in {len(entries):,} parts; the limits are {MAX_EXPANDED_BYTES:,} bytes and "
            f"{MAX_ENTRIES:,} parts",
        )
