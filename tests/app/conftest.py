"""The application over real HTTP: a server in a thread, on a free loopback port."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.config import load_settings
from app.main import create_app
from app.serve import make_server
from tests.app.fakes import FakeService

Serve = Callable[..., httpx.Client]


@contextmanager
def running(service: FakeService, home: Path, **settings: Any) -> Iterator[str]:
    """Base URL of a server over the service, stopped at the end."""
    parsed = load_settings(home=home, port=0, **settings)
    server = make_server(parsed, create_app(parsed, service))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended before it started"
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a server: ``serve(service, **settings)`` gives a client of it."""
    with ExitStack() as stack:

        def start(service: FakeService, **settings: Any) -> httpx.Client:
            url = stack.enter_context(running(service, tmp_path, **settings))
            return stack.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=20))

        yield start


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeService, httpx.Client]]:
    """One server with default settings for the tests of a module that need no other."""
    service = FakeService()
    with (
        running(service, tmp_path_factory.mktemp("home")) as url,
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        yield service, client


@pytest.fixture
def service(shared: tuple[FakeService, httpx.Client]) -> FakeService:
    """The service behind ``client``, empty."""
    shared[0].clear()
    return shared[0]


@pytest.fixture
def client(shared: tuple[FakeService, httpx.Client], service: FakeService) -> httpx.Client:
    """A client of the module's server."""
    return shared[1]
