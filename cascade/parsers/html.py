"""Web pages to markdown."""

from cascade.errors import DocumentError, DocumentProblem
from cascade.parsers.extract import Extract


def parse_html(content: bytes) -> Extract:
    """The page's readable part as markdown, without scripts and styles; the encoding is the one the page names."""
    from bs4.dammit import UnicodeDammit
    from markitdown.converters import HtmlConverter

    html = UnicodeDammit(content, is_html=True).unicode_markup
    if html is None:
        raise DocumentError(DocumentProblem.BINARY, "is in no known encoding")
    converted = HtmlConverter().convert_string(html)
    return Extract(converted.markdown, converted.title or "")
