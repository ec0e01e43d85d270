"""What the command line does without a server: precompute a folder, ask one question, check the installation."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
from tqdm import tqdm

from app.config import Settings
from app.errors import InvalidRequest
from app.service import KvfuseService
from app.service_api import AnswerRequest, ChatMessage, FileView, TextDelta
from cascade.parse import SUPPORTED_SUFFIXES

_POLL_S = 0.2


@dataclass(frozen=True)
class PrecomputeSummary:
    """What one precompute run came to; `failed` holds (path or file name, reason)."""

    documents: int
    passages: int
    tokens: int
    raw_bytes: int
    stored_bytes: int
    failed: tuple[tuple[str, str], ...]

    def describe(self) -> str:
        """Return the summary in a few words."""
        ready = f"{self.documents} documents, {self.passages} passages, {self.tokens} tokens ready"
        if not self.raw_bytes:
            return f"{ready}; nothing to compute"
        saved = 1 - self.stored_bytes / self.raw_bytes
        return f"{ready}; computed {self.raw_bytes / 1e6:.1f} MB of KV, stored {saved:.1%} smaller"


def precompute(settings: Settings, paths: Sequence[Path]) -> PrecomputeSummary:
    """Make every text and markdown file under `paths` ready; a broken run goes on where it stopped.

    Raises:
        InvalidRequest: there is no document under `paths`, or some failed; the message lists them.
    """
    files = sorted(set(_documents(paths)))
    if not files:
        raise InvalidRequest(f"no document ({', '.join(SUPPORTED_SUFFIXES)}) under {', '.join(map(str, paths))}")

    async def run() -> PrecomputeSummary:
        async with running(settings) as service:
            return await precompute_with(service, files)

    summary = asyncio.run(run())
    print(summary.describe())
    if summary.failed:
        lines = "\n".join(f"  {name}: {reason}" for name, reason in summary.failed)
        raise InvalidRequest(f"{len(summary.failed)} of {len(files)} documents failed:\n{lines}")
    return summary


def ask(settings: Settings, question: str, url: str | None = None) -> None:
    """Print the answer to one question as it is generated, by the server at `url` or by an engine of its own."""
    if url is not None:
        _ask_server(settings, question, url)
        return

    async def run() -> None:
        async with running(settings) as service:
            async for event in service.answer(plain_question(question)):
                if isinstance(event, TextDelta):
                    print(event.text, end="", flush=True)
                else:
                    print("\n" + describe(event.kvfuse))

    asyncio.run(run())


def doctor(settings: Settings) -> dict[str, Any]:
    """Start everything once and return what each part says about itself."""

    async def run() -> dict[str, Any]:
        async with running(settings) as service:
            return await service.doctor()

    return asyncio.run(run())


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[KvfuseService]:
    """A started service without HTTP."""
    service = KvfuseService(settings)
    try:
        await service.start()
        yield service
    finally:
        await service.stop()


async def precompute_with(service: KvfuseService, files: Sequence[Path]) -> PrecomputeSummary:
    """Add `files` and wait until each is ready or failed, showing progress in passages."""
    failed: dict[str, str] = {}
    views: dict[str, FileView] = {}
    for file in tqdm(files, desc="Reading documents", unit="file"):
        try:
            view = await service.add_file(file.name, await asyncio.to_thread(file.read_bytes))
        except (InvalidRequest, OSError) as error:
            failed[str(file)] = str(error)
        else:
            views[view.id] = view
    await _watch(service, list(views))
    for id in views:
        views[id] = view = await service.get_file(id)
        if view.status == "error":
            failed[view.filename] = view.status_details or ""
    ready = [view for view in views.values() if view.status == "processed"]
    saved = service.bank.banked
    return PrecomputeSummary(
        documents=len(ready),
        passages=sum(view.passages for view in ready),
        tokens=sum(view.tokens for view in ready),
        raw_bytes=saved.raw_bytes,
        stored_bytes=saved.stored_bytes,
        failed=tuple(failed.items()),
    )


def plain_question(question: str) -> AnswerRequest:
    """Return a request with every option left to the settings."""
    return AnswerRequest(
        messages=(ChatMessage("user", question),),
        model=None,
        max_tokens=None,
        temperature=0.0,
        top_p=1.0,
        seed=None,
        stop=(),
        policy=None,
        boundary_tokens=None,
        top_k=None,
        document_ids=None,
        request_id=uuid.uuid4().hex,
    )


def describe(kvfuse: dict[str, Any]) -> str:
    """Return the passages, scores and accounts of one answer as text for a terminal."""
    passages = kvfuse["selection"]["passages"]
    lines = [f"  {p['rank']}. {p['title']} (part {p['ordinal'] + 1}), score {p['score']:.4f}" for p in passages]
    tokens, times = kvfuse["tokens"], kvfuse["timings_ms"]
    accounts = f"{tokens['reused']} tokens reused / {tokens['recomputed']} recomputed / {tokens['computed']} computed"
    return "\n".join(["Passages:", *lines, f"{accounts}; time to first token {times['ttft'] / 1000:.3f} s"])


def _documents(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
        else:
            yield from (
                file for file in path.rglob("*") if file.suffix.lower() in SUPPORTED_SUFFIXES and file.is_file()
            )


async def _watch(service: KvfuseService, ids: Sequence[str]) -> None:
    """Show how many passages of the documents are stored until every one is ready or failed."""
    idle = asyncio.create_task(service.ingestor.idle())
    with tqdm(desc="Precomputing passages", unit="passage") as bar:
        while True:
            done = await asyncio.wait([idle], timeout=_POLL_S)
            views = [await service.get_file(id) for id in ids]
            bar.total = sum(view.passages for view in views)
            bar.n = sum(view.passages_done for view in views)
            bar.refresh()
            if done[0]:
                return


def _ask_server(settings: Settings, question: str, url: str) -> None:
    key = settings.api_keys[0].get_secret_value() if settings.api_keys else "none"
    client = openai.OpenAI(base_url=f"{url.rstrip('/')}/v1", api_key=key)
    try:
        stream = client.chat.completions.create(
            model=settings.model_name, messages=[{"role": "user", "content": question}], stream=True
        )
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                print(chunk.choices[0].delta.content, end="", flush=True)
            if (account := (chunk.model_extra or {}).get("kvfuse")) is not None:
                print("\n" + describe(account))
    except openai.OpenAIError as error:
        raise InvalidRequest(f"{url}: {error}") from error
    sys.stdout.flush()
