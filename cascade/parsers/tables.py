"""Tables to markdown that can be cut between any two rows."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from cascade.parsers.extract import Extract
from cascade.parsers.plain import decode

BLOCK_CHARS = 500  # of rows under one header: about a passage, so that most passages begin with the columns' names

csv.field_size_limit(2**31 - 1)


def parse_csv(content: bytes) -> Extract:
    """The rows of a CSV file, its first row taken as the header; comma, semicolon, tab or bar separated."""
    text = decode(content)
    try:
        dialect: type[csv.Dialect] = csv.Sniffer().sniff(text[:10_000], ",;\t|")
    except csv.Error:
        dialect = csv.excel
    return Extract(markdown_table(csv.reader(io.StringIO(text), dialect)))


def markdown_table(rows: Iterable[Sequence[object]]) -> str:
    """A markdown table with the first row as header, which is repeated every BLOCK_CHARS characters of rows."""
    lines = (line for line in map(_cells, rows) if any(line))
    header = next(lines, None)
    if header is None:
        return ""
    head = f"{_line(header)}\n{_line(['---'] * len(header))}\n"
    return "\n".join(head + block for block in _blocks(lines)) or head


def _blocks(lines: Iterable[Sequence[str]]) -> Iterator[str]:
    block = ""
    for line in map(_line, lines):
        if block and len(block) + len(line) > BLOCK_CHARS:
            yield block
            block = ""
        block += f"{line}\n"
    if block:
        yield block


def _cells(row: Sequence[object]) -> list[str]:
    return ["" if cell is None else " ".join(str(cell).split()).replace("|", "\\|") for cell in row]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
