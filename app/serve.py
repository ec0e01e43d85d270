"""The HTTP server in this process."""

import logging

import uvicorn
from fastapi import FastAPI

from app.config import Settings
from app.main import create_app

logger = logging.getLogger(__name__)

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
GRACE_SECONDS = 10


def run_server(settings: Settings) -> bool:
    """Serve until stopped; False if the service could not start."""
    from app.service import create_service  # brings the engine in

    if settings.host not in LOOPBACK and not settings.api_keys:
        logger.warning("listening on %s without API keys: anyone who reaches it may use it", settings.host)
    failures: list[BaseException] = []

    def stop(error: BaseException) -> None:
        failures.append(error)
        server.should_exit = True

    server = make_server(settings, create_app(settings, create_service(settings), stop))
    server.run()
    return server.started and not failures


def make_server(settings: Settings, app: FastAPI) -> uvicorn.Server:
    """The server, not yet running; logging is left to ``configure_logging``."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return uvicorn.Server(config)
