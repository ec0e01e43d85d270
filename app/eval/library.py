"""Library: the documents of a run's questions, as passages, and through the service's own cascade."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.answering import prompt_order
from app.config import Settings
from app.eval.data import Doc, Question
from app.eval.lab import Lab
from app.retrieval import make_retriever
from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.parse import ParsedDocument
from cascade.types import MediaType, Passage

RANKED = 20
"""How far down a ranking is kept for recall, MRR and nDCG."""


@dataclass(frozen=True)
class Found:
    """What the cascade chose for one question.

    passages: in prompt order, the most relevant last. documents: the name of each one's document: the question's own
    id for it, or a hash of another question's. ranking: such names, most relevant first. select_s: seconds by stage.
    """

    passages: tuple[Passage, ...]
    documents: tuple[str, ...]
    ranking: tuple[str, ...] = ()
    select_s: Mapping[str, float] = field(default_factory=dict)


def all_passages(lab: Lab, question: Question) -> Found:
    """Take every candidate document of a question whole, in its order."""
    made = [passage for doc in question.docs for passage in lab.passages(doc.id, doc.title, doc.text)]
    return Found(tuple(made), tuple(passage.document_id for passage in made))


class Library:
    """One search index over the candidate documents of all questions of a run; equal documents are held once."""

    def __init__(self, lab: Lab, catalog: Catalog, embedder: Embedder, settings: Settings) -> None:
        self._lab = lab
        self._catalog = catalog
        self._embedder = embedder
        self._retriever = make_retriever(settings, catalog, embedder)
        self._top_k = settings.top_k
        self._context_tokens = settings.context_tokens
        self._ids: dict[tuple[str, str], str] = {}
        self._names: dict[str, str] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, lab: Lab, folder: Path, embedder: Embedder, settings: Settings) -> AsyncIterator["Library"]:
        """Open an empty library whose catalogue lies in `folder`, searched as `settings` say."""
        catalog = await Catalog.open(folder / "catalog.sqlite", lab.language.fingerprint)
        try:
            yield cls(lab, catalog, embedder, settings)
        finally:
            await catalog.close()

    async def add(self, docs: Sequence[Doc]) -> None:
        """Take documents in, embeddings and all."""
        for doc in docs:
            if (doc.title, doc.text) not in self._ids:
                self._ids[doc.title, doc.text] = await self._add(doc)
        await self._retriever.refresh()

    async def find(self, question: Question) -> Found:
        """Choose passages for a question out of the whole library."""
        everything = await self._retriever.rank(question.question)
        selection = await self._retriever.search(question.question, self._top_k, self._context_tokens)
        names = self._names | {self._ids[doc.title, doc.text]: doc.id for doc in question.docs}
        chosen = tuple(scored.passage for scored in prompt_order(selection.passages))
        return Found(
            chosen,
            tuple(names[passage.document_id] for passage in chosen),
            tuple(dict.fromkeys(names[scored.passage.document_id] for scored in everything[:RANKED])),
            {stage: milliseconds / 1000 for stage, milliseconds in selection.timings_ms.items()},
        )

    async def _add(self, doc: Doc) -> str:
        content = f"{doc.title}\n{doc.text}".encode()
        result = await self._catalog.add(f"{doc.id}.txt", content, MediaType.TEXT)
        await self._catalog.parsed(result.document.id, ParsedDocument(doc.title, doc.text, MediaType.TEXT))
        made = self._lab.passages(result.document.id, doc.title, doc.text)
        texts = [f"{passage.title}\n{passage.text}" for passage in made]
        embeddings = await asyncio.to_thread(self._embedder.embed, texts)
        await self._catalog.complete(result.document.id, made, embeddings)
        self._names[result.document.id] = result.document.sha256[:12]
        return result.document.id
