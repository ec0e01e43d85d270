import socket
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.config import load_settings
from app.serve import run_server
from tests.app.fakes import FakeService


async def fail() -> None:
    raise RuntimeError("no such model")


def use(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a service where the real one is made: the real one brings the engine in."""
    monkeypatch.setitem(sys.modules, "app.service", SimpleNamespace(create_service=lambda settings: service))


def test_a_service_that_cannot_start_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = FakeService(start=fail)
    use(service, monkeypatch)
    assert run_server(load_settings(home=tmp_path, port=0)) is False
    assert service.stopped
    assert "no such model" in caplog.text


def test_a_port_in_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = FakeService()
    use(service, monkeypatch)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as exit:
            run_server(load_settings(home=tmp_path, port=port))
    assert exit.value.code != 0
    assert str(port) in caplog.text
    assert service.stopped


def test_an_open_address_without_keys_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use(FakeService(start=fail), monkeypatch)
    run_server(load_settings(home=tmp_path, port=0, host="0.0.0.0"))
    assert "without API keys" in caplog.text
