"""What the service says on standard error."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from app.telemetry import configure_logging, request_id

CLIENTS = ("httpx", "httpx2")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    for name in CLIENTS:
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_is_json_and_names_its_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert not sys.stderr.isatty()
    configure_logging("info")
    token = request_id.set("r-1")
    logging.getLogger("app.some").info("said %d", 7)
    logging.getLogger("app.some").debug("not said")
    request_id.reset(token)
    (line,) = lines(capsys)
    assert (line["name"], line["request_id"], line["message"]) == ("app.some", "r-1", "said 7")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("level", "heard"), [("info", ["warning"]), ("debug", ["info", "warning"]), ("error", [])])
def test_requests_to_engines_are_told_of_only_when_debugging(
    capsys: pytest.CaptureFixture[str], client: str, level: str, heard: list[str]
) -> None:
    configure_logging(level)
    logging.getLogger(client).info("info")
    logging.getLogger(client).warning("warning")
    assert [line["message"] for line in lines(capsys)] == heard
