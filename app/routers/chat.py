"""Questions: OpenAI's chat completions, streamed or whole."""

import time
import uuid
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from app import telemetry
from app.deps import ServiceDep, SettingsDep
from app.library import Library
from app.responses import as_app_error, error_body
from app.routers.models import require_model
from app.schemas.chat import ChatRequest
from app.schemas.completion import Completion, Reply
from app.service_api import AnswerDone, AnswerEvent, TextDelta
from app.streaming import EventStream, chain, until_disconnect, with_deadline

router = APIRouter(prefix="/v1", tags=["chat"])

Events = AsyncGenerator[AnswerEvent, None]
_EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
_STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": _EVENT}}}}


@router.post("/chat/completions", response_model=Completion, responses=_STREAM)
async def chat(
    body: ChatRequest, request: Request, service: ServiceDep, settings: SettingsDep
) -> Response | Completion:
    """Answer the last user message from the documents."""
    require_model(body.model, service.model_name)
    reply = Reply(id=f"chatcmpl-{uuid.uuid4().hex}", model=service.model_name)
    answer = service.answer(body.to_answer_request(reply.id, await _documents(body, service.library)))
    events = _timed(with_deadline(answer, settings.request_timeout_s))
    if not body.stream:
        return await until_disconnect(request.receive, _whole(reply, events))
    first = await until_disconnect(request.receive, anext(events))  # what fails before any text is a plain HTTP error
    include_usage = body.stream_options is not None and body.stream_options.include_usage
    return EventStream(_server_sent(reply, chain(first, events), include_usage), events)


async def _documents(body: ChatRequest, library: Library) -> Collection[str] | None:
    """The documents that a question is asked of; None for all there are."""
    chosen = None if body.kvfuse.document_ids is None else set(body.kvfuse.document_ids)
    for scope in body.scopes:
        members = set(await library.members(scope.vector_store_ids or (), scope.where))
        chosen = members if chosen is None else members & chosen
    return chosen


async def _whole(reply: Reply, events: Events) -> Completion:
    text: list[str] = []
    async with aclosing(events):
        async for event in events:
            if isinstance(event, AnswerDone):
                return reply.whole("".join(text), event)
            text.append(event.text)
    raise RuntimeError("the answer ended without its account")


async def _server_sent(reply: Reply, events: Events, include_usage: bool) -> AsyncGenerator[str, None]:
    yield _event(reply.delta(role="assistant", content=""))
    try:
        async for event in events:
            if isinstance(event, TextDelta):
                yield _event(reply.delta(content=event.text))
                continue
            yield _event(reply.last(event))
            if include_usage:
                yield _event(reply.usage(event))
    except Exception as error:
        yield _event(error_body(as_app_error(error)))
    yield "data: [DONE]\n\n"


async def _timed(events: Events) -> Events:
    """The same events, with the time to first token counted."""
    start = time.perf_counter()
    waiting = True
    async with aclosing(events):
        async for event in events:
            if waiting and isinstance(event, TextDelta):
                telemetry.FIRST_TOKEN_SECONDS.observe(time.perf_counter() - start)
                waiting = False
            yield event


def _event(payload: BaseModel) -> str:
    return f"data: {payload.model_dump_json()}\n\n"
