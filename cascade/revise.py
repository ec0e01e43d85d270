"""Splitting a new version of a text so that what did not change keeps its passages."""

from collections.abc import Sequence

from cascade.split import Span, Splitter


def split_anew(text: str, splitter: Splitter, old: Sequence[str]) -> list[Span]:
    """Spans of `text`: the texts of `old` passages that still occur, in their order, and new ones in the gaps.

    A gap too small for a passage of its own takes its neighbour along.
    """
    spans: list[Span] = []
    gap = 0
    for kept in _anchors(text, old):
        spans += _fill(text, splitter, Span(gap, kept.start), spans)
        spans.append(kept)
        gap = kept.end
    return spans + _fill(text, splitter, Span(gap, len(text)), spans)


def _anchors(text: str, old: Sequence[str]) -> list[Span]:
    """Where old passages stand in the new text; one that would skip over the places of others is dropped."""
    anchors: list[Span] = []
    at = 0
    for index, passage in enumerate(old):
        start = text.find(passage, at)
        following = text.find(old[index + 1], at) if index + 1 < len(old) else -1
        if start < 0 or at <= following < start:
            continue
        anchors.append(Span(start, start + len(passage)))
        at = start + len(passage)
    return anchors


def _fill(text: str, splitter: Splitter, gap: Span, spans: list[Span]) -> list[Span]:
    """Spans for a gap; takes back the last of `spans` when the gap is tiny."""
    if not gap.of(text).strip():
        return []
    if spans and splitter.is_tiny(text, gap):
        gap = spans.pop().to(gap)
    made = splitter.split(gap.of(text))
    return [Span(gap.start + span.start, gap.start + span.end) for span in made]
