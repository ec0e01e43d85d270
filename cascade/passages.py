"""A document's text to passages with token ids and chunk keys."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cascade.headings import Headings
from cascade.revise import split_anew
from cascade.split import Span, Splitter
from cascade.tokenize import PlainTokenizer
from cascade.types import Document, Passage, SourceText

MIN_PASSAGE_TOKENS = 64


def render_passage(title: str, text: str) -> str:
    """The text the main model reads for a passage."""
    return f"{title}\n{text}\n\n"


@dataclass(frozen=True)
class PassageMaker:
    """Makes the passages of documents for one model.

    `chunk_key` turns a passage's token ids into the key of its KVChunk. `limit` counts the tokens of the rendered
    passage, title included.
    """

    tokenizer: PlainTokenizer
    chunk_key: Callable[[Sequence[int]], str]
    limit: int = 300

    def __post_init__(self) -> None:
        if self.limit < MIN_PASSAGE_TOKENS:
            raise ValueError(f"passage limit of {self.limit} tokens is below the least possible, {MIN_PASSAGE_TOKENS}")

    def make(self, document: Document, source: SourceText, old: Sequence[Passage] = ()) -> list[Passage]:
        """Split and tokenise; the same document always gives the same passages. Takes a core for a while.

        Passages of `old`, an earlier version of the document, stay as they are wherever their text does, so that
        only what has changed gets new keys.
        """
        title = self.tokenizer.clip(document.title, self.limit // 4)  # a long title must leave room for the text

        def size(piece: str) -> int:
            return self.tokenizer.count(render_passage(title, piece))

        splitter = Splitter(size, self.limit, markdown=document.media_type.is_markdown)
        kept = [passage.text for passage in old if passage.title == title]
        spans = split_anew(source.text, splitter, kept) if kept else splitter.split(source.text)
        headings = Headings.of(source.text if document.media_type.is_markdown else "")
        return [
            self._passage(document.id, ordinal, title, span, source, headings) for ordinal, span in enumerate(spans)
        ]

    def _passage(
        self, document_id: str, ordinal: int, title: str, span: Span, source: SourceText, headings: Headings
    ) -> Passage:
        text = span.of(source.text)
        token_ids = tuple(self.tokenizer.encode(render_passage(title, text)))
        return Passage(
            id=f"{document_id}-{ordinal}",
            document_id=document_id,
            ordinal=ordinal,
            title=title,
            text=text,
            start=span.start,
            end=span.end,
            token_ids=token_ids,
            chunk_key=self.chunk_key(token_ids),
            page=bisect_right(source.page_starts, span.start) or None,
            heading=" > ".join(headings.at(span.start)),
        )
