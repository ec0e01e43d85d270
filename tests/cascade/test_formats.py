"""Office files, PDF, web pages and tables: what people have becomes text, what cannot be read says why."""

import pytest

from cascade.errors import DocumentError, DocumentProblem
from cascade.parse import ParsedDocument, parse_document
from cascade.types import MediaType
from tests.cascade import files

PROSE = [
    "The harbour office opens at seven and closes when the last ferry has left the quay.",
    "Every skipper signs the register before noon, and the clerk counts the signa-",
    "tures twice. Nobody may anchor",
    "in the channel.",
    "",
    "Fees are paid in cash.",
]


def refusal(filename: str, content: bytes) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        parse_document(filename, content)
    assert filename in str(caught.value)
    return caught.value


def outcome_of(filename: str, content: bytes) -> str:
    try:
        return "read" if parse_document(filename, content).text else "nothing"
    except DocumentError as error:
        return error.code


def page_of(parsed: ParsedDocument, page: int) -> str:
    starts = [*parsed.page_starts, len(parsed.text)]
    return parsed.text[starts[page - 1] : starts[page]]


def test_pdf_pages_keep_their_offsets() -> None:
    parsed = parse_document("a.pdf", files.pdf(["First page."], [], ["Third page."], title="Harbour rules"))
    assert (parsed.media_type, parsed.title) == (MediaType.PDF, "Harbour rules")
    assert page_of(parsed, 1).strip() == "First page."
    assert page_of(parsed, 2) == ""
    assert page_of(parsed, 3).strip() == "Third page."


def test_lines_of_a_pdf_paragraph_are_joined() -> None:
    text = parse_document("a.pdf", files.pdf(PROSE)).text
    assert "left the quay. Every skipper" in text
    assert "counts the signatures twice. Nobody may anchor in the channel.\n" in text
    assert "\nFees are paid in cash." in text


@pytest.mark.parametrize("stated", ["", "Microsoft Word - draft.doc", "scan0001.pdf"])
def test_a_title_left_by_a_program_is_no_title(stated: str) -> None:
    assert parse_document("harbour-rules.pdf", files.pdf(["Text."], title=stated)).title == "harbour rules"


def test_a_pdf_protected_against_changes_only_is_read() -> None:
    assert "First page" in parse_document("a.pdf", files.encrypted(files.pdf(["First page."]), "")).text


def test_docx_headings_and_tables() -> None:
    content = files.docx(
        ("Heading1", "Harbour rules"), ("", "Fees are paid in cash."), table=[["ship", "fee"], ["barge", "12"]]
    )
    parsed = parse_document("a.docx", content)
    assert parsed.title == "Harbour rules"
    assert "# Harbour rules" in parsed.text
    assert "Fees are paid in cash." in parsed.text
    assert "| barge | 12 |" in parsed.text


def test_pptx_slides_are_pages() -> None:
    parsed = parse_document("a.pptx", files.pptx(("Harbour", "Opens at seven"), ("Fees", "Paid in cash")))
    assert parsed.title == "Harbour"
    assert len(parsed.page_starts) == 2
    assert "Paid in cash" in page_of(parsed, 2)
    assert "Paid in cash" not in page_of(parsed, 1)


def test_xlsx_sheets_are_tables_of_whole_cells() -> None:
    long_cell = "a very long remark that goes on and on " * 5
    content = files.xlsx(
        Fees=[["ship", "fee"], ["barge", 12], ["tug|boat", None]], Notes=[["note"], [long_cell]], Empty=[]
    )
    text = parse_document("a.xlsx", content).text
    assert "## Fees\n\n| ship | fee |\n| --- | --- |\n| barge | 12 |\n| tug\\|boat |  |" in text
    assert long_cell.strip() in text
    assert "Empty" not in text


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_by_any_separator(separator: str) -> None:
    rows = [["ship", "fee", "remark"], ["barge", "12", "old"], ["tug", "9", "two\nlines"]]
    content = "\n".join(separator.join(f'"{cell}"' for cell in row) for row in rows)
    text = parse_document("a.csv", content.encode()).text
    assert text.splitlines()[0] == "| ship | fee | remark |"
    assert "| tug | 9 | two lines |" in text


def test_long_tables_repeat_their_header() -> None:
    content = "ship,fee\n" + "\n".join(f"ship number {n},{n}" for n in range(200))
    text = parse_document("a.csv", content.encode()).text
    assert text.count("| ship | fee |") > 5
    assert all(f"| ship number {n} | {n} |" in text for n in range(200))


def test_html_is_read_without_its_machinery() -> None:
    page = (
        "<html><head><meta charset='iso-8859-1'><title>Hafen Köln</title><style>p {}</style></head><body>"
        "<script>evil()</script><h1>Gebühren</h1><p>Bar zahlen.</p><ul><li>eins</li></ul></body></html>"
    )
    parsed = parse_document("a.html", page.encode("iso-8859-1"))
    assert parsed.title == "Hafen Köln"
    assert "# Gebühren" in parsed.text
    assert "evil" not in parsed.text
    assert "p {}" not in parsed.text


@pytest.mark.filterwarnings("ignore:HTML document is too deeply nested")
def test_deeply_nested_html_is_read() -> None:
    page = "<div>" * 20_000 + "deep" + "</div>" * 20_000
    assert "deep" in parse_document("a.html", page.encode()).text


def test_an_encrypted_pdf_says_so() -> None:
    error = refusal("a.pdf", files.encrypted(files.pdf(["Secret."]), "password"))
    assert error.code is DocumentProblem.ENCRYPTED


def test_an_encrypted_office_file_says_so() -> None:
    error = refusal("a.docx", bytes.fromhex("D0CF11E0A1B11AE1") + bytes(3000))
    assert error.code is DocumentProblem.ENCRYPTED


def test_a_pdf_of_pictures_says_so() -> None:
    error = refusal("scan.pdf", files.pdf([], []))
    assert error.code is DocumentProblem.NO_TEXT
    assert "2 pages" in str(error)


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx"])
def test_a_zip_bomb_is_not_unpacked(kind: str) -> None:
    error = refusal(f"a.{kind}", files.zipped({f"part{n}.xml": bytes(50_000_000) for n in range(6)}))
    assert error.code is DocumentProblem.BOMB
    assert "300,000,000 bytes" in str(error)


@pytest.mark.parametrize("kind", ["pdf", "docx", "pptx", "xlsx"])
@pytest.mark.parametrize("content", [b"not at all", b"PK\x03\x04 torn", b"%PDF-1.4 torn"], ids=["text", "zip", "pdf"])
def test_a_broken_file_says_what_it_should_have_been(kind: str, content: bytes) -> None:
    error = refusal(f"a.{kind}", content)
    assert error.code is DocumentProblem.BROKEN


@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        ("pdf", files.pdf(["Some text."] * 40)),
        ("docx", files.docx(("", "Some text."))),
        ("pptx", files.pptx(("Title", "Some text."))),
        ("xlsx", files.xlsx(Sheet=[["a"], ["b"]])),
    ],
)
def test_a_torn_file_is_refused_or_read_and_nothing_else(kind: str, whole: bytes) -> None:
    outcomes = {outcome_of(f"a.{kind}", whole[:end]) for end in range(1, len(whole), max(1, len(whole) // 20))}
    assert outcomes <= {"read", DocumentProblem.BROKEN, DocumentProblem.NO_TEXT}
    assert DocumentProblem.BROKEN in outcomes


@pytest.mark.parametrize(
    ("filename", "content"),
    [("a.xlsx", files.xlsx(Sheet=[])), ("a.docx", files.docx()), ("a.csv", b"\n\n"), ("a.html", b"<p></p>")],
)
def test_a_file_without_text_is_empty(filename: str, content: bytes) -> None:
    assert refusal(filename, content).code is DocumentProblem.EMPTY
