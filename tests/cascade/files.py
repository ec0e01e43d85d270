"""Small real files of every format, made here."""

import io
import zipfile
from collections.abc import Sequence

from openpyxl import Workbook
from pptx import Presentation
from pypdf import PdfReader, PdfWriter


def pdf(*pages: Sequence[str], title: str = "") -> bytes:
    """A PDF of the given lines; a page without lines is blank."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    info = f"/Info << /Title ({title}) >>" if title else ""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, lines in enumerate(pages):
        drawn = "".join(f"({line}) Tj 0 -14 Td " for line in lines)
        stream = f"BT /F1 11 Tf 40 780 Td {drawn}ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {5 + 2 * n} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    tail = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R {info} >>\n"
    return f"{body}{tail}startxref\n{len(body)}\n%%EOF\n".encode("latin-1")


def encrypted(content: bytes, password: str) -> bytes:
    """The same PDF, openable with the password only."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(content)))
    writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def docx(*paragraphs: tuple[str, str], table: Sequence[Sequence[str]] = ()) -> bytes:
    """A Word file; each paragraph is (style, text), style "" or "Heading1"."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "".join(
        f"<w:p>{f'<w:pPr><w:pStyle w:val={chr(34)}{style}{chr(34)}/></w:pPr>' if style else ''}{_run(text)}</w:p>"
        for style, text in paragraphs
    )
    rows = ("".join(f"<w:tc><w:p>{_run(cell)}</w:p></w:tc>" for cell in row) for row in table)
    if table:
        body += f"<w:tbl>{''.join(f'<w:tr>{cells}</w:tr>' for cells in rows)}</w:tbl>"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    packages = "http://schemas.openxmlformats.org/package/2006"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{packages}/content-types"><Default Extension="rels" ContentType='
            '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" '
            f'ContentType="{main}"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{packages}/relationships"><Relationship Id="r1" Type="{office}" '
            'Target="word/document.xml"/></Relationships>',
            "word/styles.xml": f'<w:styles xmlns:w="{word}"><w:style w:type="paragraph" w:styleId="Heading1">'
            '<w:name w:val="heading 1"/></w:style></w:styles>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{packages}/relationships"><Relationship Id="r1" '
            'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/>'
            "</Relationships>",
            "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>',
        }
    )


def pptx(*slides: tuple[str, str]) -> bytes:
    """A presentation; each slide is (title, text)."""
    deck = Presentation()
    for title, text in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def xlsx(**sheets: Sequence[Sequence[object]]) -> bytes:
    """A workbook; each sheet is its rows."""
    workbook = Workbook()
    workbook.remove(workbook.active)
    for title, rows in sheets.items():
        sheet = workbook.create_sheet(title)
        for row in rows:
            sheet.append(list(row))
    out = io.BytesIO()
    workbook.save(out)
    return out.getvalue()


def zipped(parts: dict[str, str | bytes]) -> bytes:
    """A ZIP archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def _run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"
