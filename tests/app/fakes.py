"""An in-memory service for the HTTP layer: it answers by script, so that faults happen when a test wants them."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from sqlalchemy import NullPool, create_engine, insert
from sqlalchemy.ext.asyncio import create_async_engine

from app.errors import NotFound
from app.library import Library
from app.service_api import AnswerDone, AnswerEvent, AnswerRequest, FileView, TextDelta
from cascade.catalog import Catalog
from cascade.errors import UnknownDocument
from cascade.schema import configure_connections, metadata, state
from cascade.types import Document, MediaType, Passage, ScoredPassage, Stage
from store.config import StoreConfig
from store.tiered import TieredStore

DONE = AnswerDone(
    finish_reason="stop",
    prompt_tokens=120,
    completion_tokens=2,
    cached_tokens=90,
    kvfuse={
        "policy": "boundary",
        "selection": {"passages": [{"file_id": "file-1", "title": "Leave", "text": "25 days", "score": 0.9}]},
        "tokens": {"reused": 90, "recomputed": 10, "computed": 20},
        "timings_ms": {"search": 1.5},
    },
)
HELLO: tuple[AnswerEvent, ...] = (TextDelta("Hel"), TextDelta("lo"), DONE)

Step = AnswerEvent | Exception | Callable[[], Awaitable[object]]


class FakeDocuments:
    """Documents with their passages, as a test puts them in."""

    def __init__(self) -> None:
        self.passages: dict[str, Sequence[Passage]] = {}

    async def get(self, document_id: str) -> Document:
        if document_id not in self.passages:
            raise UnknownDocument(document_id)
        return Document(document_id, f"{document_id}.txt", "", MediaType.TEXT, "", 0, Stage.READY, None, 0, 0, 0, 0, 0)

    async def list(self) -> Sequence[Document]:
        return [await self.get(document_id) for document_id in self.passages]

    async def document_passages(self, document_id: str) -> Sequence[Passage]:
        return self.passages[document_id]


class FakeRetriever:
    """Finds the same passages for every question."""

    def __init__(self) -> None:
        self.found: list[ScoredPassage] = []
        self.asked: list[tuple[str, frozenset[str]]] = []

    async def rank(self, question: str, document_ids: Iterable[str], limit: int) -> Sequence[ScoredPassage]:
        self.asked.append((question, frozenset(document_ids)))
        return self.found[:limit]

    async def similarities(self, question: str, texts: Sequence[str]) -> list[float]:
        """The share of a text's words that the question has."""
        words = set(question.lower().split())
        return [len(words & set(text.lower().split())) / max(1, len(text.split())) for text in texts]


class FakeService:
    model_name = "fake-model"

    def __init__(
        self, script: Sequence[Step] = HELLO, start: Callable[[], Awaitable[object]] | None = None, ready: bool = True
    ) -> None:
        self.script = script
        self.requests: list[AnswerRequest] = []
        self.files: dict[str, FileView] = {}
        self.contents: dict[str, bytes] = {}
        self.retried: list[str] = []
        self.stopped = False
        self.cleaned_up = asyncio.Event()
        self.catalog = FakeDocuments()
        self.retriever = FakeRetriever()
        self._start = start
        self._ready = ready

    def clear(self) -> None:
        """Forget what earlier tests left."""
        self.requests.clear()
        self.files.clear()
        self.contents.clear()

    @cached_property
    def store(self) -> TieredStore:
        """A real one, empty."""
        home = Path(mkdtemp())
        return TieredStore(StoreConfig(home / "memory", home / "disk", 1 << 24, 1 << 26, threads=1))

    @cached_property
    def documents(self) -> Catalog:
        """A real catalogue, empty, behind the library; made at once, without the migrations."""
        path = Path(mkdtemp()) / "catalog.sqlite"
        with create_engine(f"sqlite:///{path}").begin() as tx:
            metadata.create_all(tx)
            tx.execute(insert(state).values(profile="profile", revision=1))
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
        configure_connections(engine.sync_engine)
        return Catalog(engine, "profile")

    @property
    def library(self) -> Library:
        return Library(self.documents.collections, self.retriever)

    async def start(self) -> None:
        if self._start is not None:
            await self._start()

    async def stop(self) -> None:
        self.stopped = True

    async def ready(self) -> bool:
        return self._ready

    async def answer(self, request: AnswerRequest) -> AsyncGenerator[AnswerEvent, None]:
        self.requests.append(request)
        try:
            for step in self.script:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, TextDelta | AnswerDone):
                    yield step
                else:
                    await step()
        finally:
            await asyncio.sleep(0.01)  # an engine's abort awaits too: it must not be cut short
            self.cleaned_up.set()

    async def retry_file(self, id: str) -> FileView:
        self.retried.append(id)
        return await self.get_file(id)

    async def add_file(self, filename: str, content: bytes, replaces: str | None = None) -> FileView:
        if replaces is not None:
            await self.get_file(replaces)
        digest = hashlib.sha256(content).hexdigest()
        id = f"file-{digest[:12]}"
        self.contents[id] = content
        return self.files.setdefault(id, _view(id, filename, content, digest, replaces))

    async def list_files(self) -> list[FileView]:
        return list(reversed(self.files.values()))

    async def get_file(self, id: str) -> FileView:
        if id not in self.files:
            raise NotFound(f"There is no file {id!r}", param="file_id")
        return self.files[id]

    async def file_text(self, id: str) -> str:
        await self.get_file(id)
        return self.contents[id].decode(errors="replace")

    async def delete_file(self, id: str) -> None:
        await self.get_file(id)
        del self.files[id]

    async def doctor(self) -> dict[str, Any]:
        return {"ok": True}


def _view(id: str, filename: str, content: bytes, digest: str, replaces: str | None) -> FileView:
    return FileView(
        id=id,
        filename=filename,
        bytes=len(content),
        created_at=1_700_000_000,
        status="uploaded",
        status_details=None,
        passages=0,
        tokens=0,
        passages_done=0,
        sha256=digest,
        replaces=replaces,
    )
