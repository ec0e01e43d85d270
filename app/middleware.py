"""What surrounds every request: an id, a log line, metrics, a rendered error and a bound on the body."""

import logging
import re
import time
import uuid
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import telemetry
from app.errors import TooLarge
from app.responses import error_response

logger = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST = 499
OVERHEAD_BYTES = 64 * 2**10  # boundaries, headers and small fields around an uploaded file
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestContext:
    """Gives a request its id (the client's X-Request-Id if it is plain), renders what it raises, logs and counts it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _Response(send, _request_id(Headers(scope=scope)))
        telemetry.request_id.set(response.request_id)
        start = time.perf_counter()
        try:
            await self._answer(scope, receive, response)
        finally:
            _record(scope, response.status, time.perf_counter() - start)

    async def _answer(self, scope: Scope, receive: Receive, response: "_Response") -> None:
        try:
            await self._app(scope, receive, response.send)
        except ClientDisconnect:
            response.status = CLIENT_CLOSED_REQUEST
        except Exception as error:
            if response.started:
                raise  # too late for a status: the server logs it and drops the connection
            await error_response(error)(scope, receive, response.send)


class _Response:
    """Watches one response and marks it with the request's id."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 500
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            MutableHeaders(scope=message)["X-Request-Id"] = self.request_id
        await self._send(message)


class BodyLimit:
    """Stops reading a body at the limit of its path, so that no request is buffered beyond it.

    ``limit_of`` gives the limit of a path in bytes; `OVERHEAD_BYTES` more are let through for the form around an
    upload, whose own size its route checks.
    """

    def __init__(self, app: ASGIApp, limit_of: Callable[[str], int]) -> None:
        self._app = app
        self._limit_of = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit_of(scope["path"])
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > limit + OVERHEAD_BYTES:
            raise _too_large(limit)
        await self._app(scope, _limited(receive, limit), send)


def _limited(receive: Receive, limit: int) -> Receive:
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit + OVERHEAD_BYTES:
            raise _too_large(limit)
        return message

    return limited


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request body is over the limit of {limit} bytes")


def _request_id(headers: Headers) -> str:
    offered = headers.get("x-request-id", "")
    return offered if _REQUEST_ID.fullmatch(offered) else uuid.uuid4().hex


def _record(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "unmatched")
    telemetry.HTTP_REQUESTS.labels(route, scope["method"], status).inc()
    telemetry.HTTP_SECONDS.labels(route).observe(seconds)
    logger.info("%s %s %d %.0f ms", scope["method"], scope["path"], status, seconds * 1000)
