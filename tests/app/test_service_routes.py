import asyncio

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import __version__
from tests.app.conftest import Serve
from tests.app.fakes import FakeService
from tests.app.test_chat_api import PATH, QUESTION


def sample(client: httpx.Client, name: str, **labels: str) -> float:
    """Value of one metric; 0 where it has not been counted yet."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    found = [one.value for family in families for one in family.samples if one.name == name and one.labels == labels]
    return found[0] if found else 0.0


def test_while_the_engine_loads_it_is_alive_but_not_ready(serve: Serve) -> None:
    loaded = asyncio.Event()
    client = serve(FakeService(start=loaded.wait))
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/v1/models").status_code == 200
    for answer in (client.get("/ready"), client.get("/v1/files"), client.post(PATH, json=QUESTION)):
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "not_ready"
        assert int(answer.headers["retry-after"]) > 0


def test_ready_when_the_engine_answers(client: httpx.Client) -> None:
    assert client.get("/ready").json() == {"status": "ready"}


def test_not_ready_when_the_engine_stops_answering(serve: Serve) -> None:
    client = serve(FakeService(ready=False))
    assert client.get("/ready").status_code == 503
    assert client.get("/health").status_code == 200


def test_a_failed_start_is_told_and_stops_cleanly(serve: Serve) -> None:
    async def fail() -> None:
        raise RuntimeError("secret detail")

    answer = serve(FakeService(start=fail)).get("/ready")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "start_failed"
    assert "secret" not in answer.text


def test_version(client: httpx.Client) -> None:
    assert client.get("/version").json()["version"] == __version__


def test_models(client: httpx.Client) -> None:
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["fake-model"]
    assert client.get("/v1/models/fake-model").json()["object"] == "model"
    assert client.get("/v1/models/org/other").json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/nowhere", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("PUT", "/v1/files", 405, "method_not_allowed"),
        ("DELETE", "/health", 405, "method_not_allowed"),
    ],
)
def test_wrong_paths_and_methods_are_told_in_openais_shape(
    client: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert f"{method} {path}" in error["message"]
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize("path", ["/health", "/nowhere", "/v1/files/none"])
def test_every_answer_carries_the_clients_request_id(client: httpx.Client, path: str) -> None:
    assert client.get(path, headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("offered", [None, "", "a" * 65, "a b", "<x>"])
def test_a_request_id_that_is_not_plain_is_replaced(client: httpx.Client, offered: str | None) -> None:
    given = client.get("/health", headers={} if offered is None else {"X-Request-Id": offered}).headers["x-request-id"]
    assert given != offered
    assert given.isalnum()


def test_requests_are_counted_by_route_not_by_path(client: httpx.Client) -> None:
    labels = {"route": "/v1/files/{file_id}", "method": "GET", "status": "404"}
    before = sample(client, "kvfuse_http_requests_total", **labels)
    client.get("/v1/files/one")
    client.get("/v1/files/two")
    assert sample(client, "kvfuse_http_requests_total", **labels) == before + 2


@pytest.mark.parametrize("stream", [False, True])
def test_time_to_first_token_is_observed(client: httpx.Client, stream: bool) -> None:
    before = sample(client, "kvfuse_time_to_first_token_seconds_count")
    client.post(PATH, json=QUESTION | {"stream": stream})
    assert sample(client, "kvfuse_time_to_first_token_seconds_count") == before + 1


def test_the_service_is_stopped_with_the_server(serve: Serve, tmp_path: object) -> None:
    from tests.app.conftest import running

    service = FakeService(start=asyncio.Event().wait)
    with running(service, tmp_path):  # type: ignore[arg-type]
        assert not service.stopped
    assert service.stopped
