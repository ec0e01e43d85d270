"""Text to passages' spans: sentence, paragraph and heading ends, sizes in the main model's tokens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from semantic_text_splitter import MarkdownSplitter, TextSplitter

REGION_CHARS = 16_000  # the library's time grows faster than the text, and it keeps the interpreter lock meanwhile
TINY_SHARE = 0.25  # of the limit: below it a passage costs more in overhead than it says
EVEN_SHARES = (0.6, 0.75, 0.9)  # of two spans' size, tried for the larger of the two they become

Size = Callable[[str], int]


@dataclass(frozen=True)
class Span:
    """Characters `[start, end)` of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """The characters themselves."""
        return text[self.start : self.end]

    def to(self, other: "Span") -> "Span":
        """From the start of this one to the end of the other."""
        return Span(self.start, other.end)


@dataclass(frozen=True)
class Splitter:
    """Cuts texts into spans of at most `limit`, measured by `size`; only white space is lost between them."""

    size: Size
    limit: int
    markdown: bool = False

    def split(self, text: str) -> list[Span]:
        """Spans in text order, none blank, none overlapping."""
        kind = MarkdownSplitter if self.markdown else TextSplitter
        splitter = kind.from_callback(self.size, self.limit)
        return self._absorb_tiny(text, [span for region in _regions(text) for span in _cut(text, region, splitter)])

    def is_tiny(self, text: str, span: Span) -> bool:
        """Whether a span is too small for a passage of its own."""
        return self.size(span.of(text)) < TINY_SHARE * self.limit

    def _absorb_tiny(self, text: str, spans: list[Span]) -> list[Span]:
        done: list[Span] = []
        for span in spans:
            if done and (self.is_tiny(text, done[-1]) or self.is_tiny(text, span)):
                done[-1:] = self._even(text, done[-1], span)
            else:
                done.append(span)
        return done

    def _even(self, text: str, first: Span, second: Span) -> list[Span]:
        """Neighbours, one of them tiny, as one span where that keeps the limit, else as two of about the same size."""
        both = first.to(second)
        size = self.size(both.of(text))
        if size <= self.limit:
            return [both]
        for share in EVEN_SHARES:  # without regard to headings: they are what left a tiny span
            halves = _cut(text, both, TextSplitter.from_callback(self.size, ceil(share * size)))
            if len(halves) == 2 and not any(self.is_tiny(text, half) for half in halves):
                return halves
        return [first, second]


def _cut(text: str, region: Span, splitter: MarkdownSplitter | TextSplitter) -> list[Span]:
    pieces = splitter.chunk_indices(region.of(text))
    return [Span(region.start + at, region.start + at + len(piece)) for at, piece in pieces if piece.strip()]


def _regions(text: str) -> Iterator[Span]:
    start = 0
    while start < len(text):
        end = _region_end(text, start)
        yield Span(start, end)
        start = end


def _region_end(text: str, start: int) -> int:
    stop = start + REGION_CHARS
    if stop >= len(text):
        return len(text)
    for mark in ("\n\n", "\n", ". ", "。", " "):
        at = text.rfind(mark, start + REGION_CHARS // 2, stop)
        if at >= 0:
            return at + len(mark)
    return stop
