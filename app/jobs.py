"""What the command line does without a server: precompute a folder, ask one question, check the installation."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai

from app.batch import Batch, BatchFile, BatchOptions, BatchSummary, find_files
from app.config import Settings
from app.dry_run import Plan, plan_batch
from app.errors import InvalidRequest
from app.service import KvfuseService
from app.service_api import AnswerRequest, ChatMessage, TextDelta
from cascade.parse import SUPPORTED_SUFFIXES


def precompute(
    settings: Settings, paths: Sequence[Path], options: BatchOptions, dry_run: bool = False, report: Path | None = None
) -> BatchSummary | None:
    """Make every document under `paths` ready; a broken run goes on where it stopped.

    With `dry_run` only what would be done is printed. `report` is a file for the summary, or the plan, as JSON.

    Raises:
        InvalidRequest: there is no document under `paths`, or some failed; the message lists them.
    """
    files = list(find_files(paths, options))
    if not files:
        raise InvalidRequest(f"no document ({', '.join(SUPPORTED_SUFFIXES)}) under {', '.join(map(str, paths))}")
    if dry_run:
        _tell(asyncio.run(plan_batch(settings, files, options)), report)
        return None

    async def run() -> BatchSummary:
        async with running(settings) as service:
            return await _batch(service, options, files)

    summary = asyncio.run(run())
    _tell(summary, report)
    if summary.failed:
        lines = "\n".join(f"  {failure.path}: {failure.reason}" for failure in summary.failed)
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


async def precompute_with(service: KvfuseService, files: Sequence[Path]) -> BatchSummary:
    """Make `files` ready in a started service."""
    options = BatchOptions()
    return await _batch(service, options, list(find_files(files, options)))


async def _batch(service: KvfuseService, options: BatchOptions, files: Sequence[BatchFile]) -> BatchSummary:
    """Run a batch, say what it has banked, and save the index over it."""
    summary = await Batch(service.ingestor, service.catalog, options).run(files)
    await service.retriever.refresh()
    speeds = [estimate.prefill_tokens_per_s for estimate in service.store.stats().break_even.values()]
    return replace(summary, prefill_s=summary.tokens / min(speeds))


def _tell(outcome: BatchSummary | Plan, report: Path | None) -> None:
    print(outcome.describe())
    if report is not None:
        report.write_text(outcome.to_json() + "\n", encoding="utf-8")


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
