"""The application: routes, middleware and the service's life around them."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from app import __version__
from app.auth import BearerAuth
from app.config import Settings
from app.middleware import BodyLimit, RequestContext
from app.responses import handle_error
from app.routers import cache, chat, files, health, models, rerank, vector_stores
from app.schemas.errors import ErrorBody
from app.service_api import Service

logger = logging.getLogger(__name__)

MAX_JSON_BYTES = 4 * 2**20

_ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in ("4XX", "5XX")}


def create_app(
    settings: Settings, service: Service, on_start_failure: Callable[[BaseException], None] | None = None
) -> FastAPI:
    """The HTTP application over a service, which starts in the background: /health answers at once.

    Args:
        on_start_failure: called once if the service cannot start, e.g. to stop the server.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.startup = asyncio.create_task(_start(service, on_start_failure))
        try:
            yield
        finally:
            app.state.startup.cancel()
            await asyncio.gather(app.state.startup, return_exceptions=True)
            await service.stop()

    app = FastAPI(title="kvfuse", version=__version__, lifespan=lifespan, responses=_ERRORS)
    app.state.settings = settings
    app.state.service = service
    app.state.created = int(time.time())
    _add_routes(app)
    _add_middleware(app, settings)
    return app


def _add_routes(app: FastAPI) -> None:
    key = Security(HTTPBearer(auto_error=False))  # shows the key in the API's description; BearerAuth checks it
    for router in (cache, chat, files, models, rerank, vector_stores):
        app.include_router(router.router, dependencies=[key])
    app.include_router(health.router)
    app.add_exception_handler(HTTPException, handle_error)
    app.add_exception_handler(RequestValidationError, handle_error)


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    def body_limit(path: str) -> int:
        return settings.max_upload_bytes if path.startswith("/v1/files") else MAX_JSON_BYTES

    app.add_middleware(BodyLimit, limit_of=body_limit)
    app.add_middleware(BearerAuth, keys=settings.api_keys)
    app.add_middleware(RequestContext)  # the last one added is the outermost


async def _start(service: Service, on_failure: Callable[[BaseException], None] | None) -> None:
    try:
        await service.start()
    except Exception as error:
        logger.exception("the service cannot start")
        if on_failure is not None:
            on_failure(error)
        raise
