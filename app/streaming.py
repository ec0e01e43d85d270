"""Answers that end early: at a deadline, or when the client goes away."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.errors import RequestTimeout

T = TypeVar("T")


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Result of ``work``, which is cancelled and finished with before this raises.

    Plain asyncio tasks are cancelled once, so that the work's own clean-up may await.

    Raises:
        ClientDisconnect: the client closed the connection first.
    """
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def with_deadline(events: AsyncGenerator[T, None], seconds: float) -> AsyncGenerator[T, None]:
    """The same events, as long as they come within ``seconds`` from the first request for one.

    Raises:
        RequestTimeout: when time is up.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    async with aclosing(events):
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise RequestTimeout(f"The answer took longer than the limit of {seconds:g} s") from None
            yield event


class EventStream(StreamingResponse):
    """Server-sent events; body and source are closed when the client leaves, wherever they are."""

    media_type = "text/event-stream"

    def __init__(self, body: AsyncGenerator[str, None], source: AsyncGenerator[Any, None]) -> None:
        super().__init__(body, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._body = body
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        await until_disconnect(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        async with aclosing(self._source), aclosing(self._body):
            await self.stream_response(send)


async def chain(first: T, rest: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """``first``, then the rest."""
    yield first
    async for item in rest:
        yield item


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
