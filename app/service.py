"""The service: engine, store, catalogue and retriever put together, and what the routers and jobs ask of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

import torch

from app.answering import AnswerDefaults, Answerer
from app.bank import KVBank
from app.config import Settings
from app.engine import Engine
from app.engines import make_engine
from app.errors import ConfigError, InvalidRequest, NotFound, TooLarge
from app.ingest import Ingestor
from app.language import Language
from app.library import Library
from app.lm_scorer import LmScorer
from app.models import prepare_models
from app.profile import passage_maker, profile_of
from app.retrieval import make_retriever
from app.selfcheck import SelfCheck, check_fusion
from app.service_api import AnswerEvent, AnswerRequest, FileView
from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.errors import DocumentError, DocumentProblem, UnknownDocument
from cascade.pipeline import Retriever
from cascade.types import Document, Stage
from store.tiered import TieredStore

_STATUS = {Stage.READY: "processed", Stage.FAILED: "error"}
"""OpenAI's file statuses; everything under way is "uploaded"."""


class KvfuseService:
    """Implements `app.service_api.Service`; nothing but `stop` may be called before `start` has returned."""

    engine: Engine
    store: TieredStore
    catalog: Catalog
    bank: KVBank
    ingestor: Ingestor
    retriever: Retriever
    answerer: Answerer
    library: Library
    check: SelfCheck

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._parts = AsyncExitStack()
        self.model_name = settings.model_name

    async def start(self) -> None:
        """Load models, engine and index; seconds to minutes."""
        language, embedder = await asyncio.to_thread(_load_models, self._settings)
        store_config = self._settings.store_config()
        self.store = self._parts.enter_context(TieredStore(store_config))
        self.engine = make_engine(self._settings, language, store_config)
        self._parts.push_async_callback(self.engine.stop)
        await self.engine.start()
        _require_room(self._settings, language, self.engine.max_model_len)
        self.check = await check_fusion(self.engine, language)
        if not self.check.passed:
            self.engine.refuse(self.check.reason)
        await self._start_documents(language, embedder)

    async def _start_documents(self, language: Language, embedder: Embedder) -> None:
        settings = self._settings
        maker = passage_maker(settings, language)
        self.catalog = await Catalog.open(settings.home / "catalog.sqlite", profile_of(settings, language))
        self._parts.push_async_callback(self.catalog.close)
        self.bank = KVBank(
            self.engine, self.catalog, self.store, language.scheme, language.fingerprint, settings.ingest_concurrency
        )
        parts = (self.bank, self.catalog, self.store, embedder, maker)
        self.ingestor = Ingestor(*parts, settings.max_upload_bytes, settings.ingest_workers)
        lm = LmScorer(self.engine, language)
        self.retriever = make_retriever(settings, self.catalog, embedder, lm, settings.home / "index.npz")
        self._parts.push_async_callback(self.retriever.close)
        await self.retriever.refresh()
        self.library = Library(self.catalog.collections, self.retriever)
        self.answerer = Answerer(self.engine, self.retriever, self.ingestor, language, _answer_defaults(settings))
        self._parts.push_async_callback(self.answerer.stop)
        await self.answerer.start()
        self._parts.push_async_callback(self.ingestor.stop)
        await self.ingestor.start()

    async def stop(self) -> None:
        await self._parts.aclose()

    async def ready(self) -> bool:
        return await self.engine.alive()

    def answer(self, request: AnswerRequest) -> AsyncGenerator[AnswerEvent, None]:
        return self.answerer.answer(request)

    async def add_file(self, filename: str, content: bytes, replaces: str | None = None) -> FileView:
        try:
            return _view((await self.ingestor.add(filename, content, replaces=replaces)).document)
        except UnknownDocument as error:
            raise _no_such_file(error.document_id) from None
        except DocumentError as error:
            kind = TooLarge if error.code is DocumentProblem.TOO_LARGE else InvalidRequest
            raise kind(str(error), param="file", code=error.code) from error

    async def retry_file(self, id: str) -> FileView:
        try:
            return _view(await self.ingestor.retry(id))
        except UnknownDocument:
            raise _no_such_file(id) from None

    async def list_files(self) -> list[FileView]:
        return [_view(document) for document in reversed(await self.catalog.list())]

    async def get_file(self, id: str) -> FileView:
        try:
            return _view(await self.catalog.get(id))
        except UnknownDocument:
            raise _no_such_file(id) from None

    async def file_text(self, id: str) -> str:
        try:
            return (await self.catalog.source(id)).text
        except UnknownDocument:
            raise _no_such_file(id) from None

    async def delete_file(self, id: str) -> None:
        try:
            await self.ingestor.delete(id)
        except UnknownDocument:
            raise _no_such_file(id) from None

    async def doctor(self) -> dict[str, Any]:
        stats = self.store.stats()
        return {
            "ok": self.check.passed,
            "engines": await self.engine.describe(),
            "fusion": asdict(self.check),
            "codec": {"backend": stats.backend, "reason": stats.backend_reason},
            "store": {**await self.engine.store_stats(), "service": asdict(stats)},
            "documents": len(await self.catalog.list()),
        }


def create_service(settings: Settings) -> KvfuseService:
    """Return the service that `settings` describe, not yet started."""
    return KvfuseService(settings)


def _load_models(settings: Settings) -> tuple[Language, Embedder]:
    # The engine's threads have the cores: a second team of threads here would wait for them at every question.
    torch.set_num_threads(1)
    model, embedder = settings.model, settings.embedder
    if model is None or embedder is None:
        packaged = prepare_models(settings.home)
        model, embedder = model or packaged.llm, embedder or packaged.embedder
    language = Language.load(model, settings.dtype, settings.ingest_passes, cache_dir=settings.home)
    return language, Embedder(embedder)


def _require_room(settings: Settings, language: Language, max_model_len: int) -> None:
    needed = language.scheme.prompt_tokens(settings.passage_tokens)
    if needed > max_model_len:
        raise ConfigError(
            f"passage_tokens is {settings.passage_tokens}: a passage and its predecessor take {needed} tokens at "
            f"ingest, the model's context has {max_model_len}"
        )


def _answer_defaults(settings: Settings) -> AnswerDefaults:
    return AnswerDefaults(
        top_k=settings.top_k,
        context_tokens=settings.context_tokens,
        policy=settings.policy,
        boundary_tokens=settings.boundary_tokens,
        budget=settings.budget,
        max_tokens=settings.max_output_tokens,
        salt=settings.tenant_salt,
        share_fused=settings.share_fused,
        no_context=settings.no_context,
    )


def _view(document: Document) -> FileView:
    return FileView(
        id=document.id,
        filename=document.filename,
        bytes=document.bytes,
        created_at=document.created_at,
        status=_STATUS.get(document.stage, "uploaded"),
        status_details=document.error or document.stage.value,
        passages=document.passages,
        tokens=document.tokens,
        passages_done=document.passages_done,
        sha256=document.sha256,
        replaces=document.replaces,
    )


def _no_such_file(id: str) -> NotFound:
    return NotFound(f"no such file: {id}", param="file_id")
