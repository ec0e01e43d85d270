"""A document's text to passages with token ids and chunk keys."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cascade.split import Splitter
from cascade.tokenize import PlainTokenizer
from cascade.types import Document, MediaType, Passage

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

    def make(self, document: Document, text: str) -> list[Passage]:
        """Split and tokenise; the same document always gives the same passages. Takes a core for a while."""
        title = self.tokenizer.clip(document.title, self.limit // 4)  # a long title must leave room for the text

        def size(piece: str) -> int:
            return self.tokenizer.count(render_passage(title, piece))

        spans = Splitter(size, self.limit, markdown=document.media_type is MediaType.MARKDOWN).split(text)
        return [
            self._passage(document.id, ordinal, title, span.of(text), span.start) for ordinal, span in enumerate(spans)
        ]

    def _passage(self, document_id: str, ordinal: int, title: str, text: str, start: int) -> Passage:
        token_ids = tuple(self.tokenizer.encode(render_passage(title, text)))
        return Passage(
            id=f"{document_id}-{ordinal}",
            document_id=document_id,
            ordinal=ordinal,
            title=title,
            text=text,
            start=start,
            end=start + len(text),
            token_ids=token_ids,
            chunk_key=self.chunk_key(token_ids),
        )
