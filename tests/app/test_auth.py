from collections.abc import Iterator

import httpx
import pytest

from tests.app.conftest import Serve, running
from tests.app.fakes import FakeService

KEYS = "alpha-key,beta-key"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Client without a key of a server that asks for one."""
    home = tmp_path_factory.mktemp("home")
    with running(FakeService(), home, api_keys=KEYS) as url, httpx.Client(base_url=url, trust_env=False) as client:
        yield client


@pytest.mark.parametrize("key", KEYS.split(","))
def test_each_key_opens(guarded: httpx.Client, key: str) -> None:
    assert guarded.get("/v1/files", headers={"Authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "missing_api_key"),
        ("alpha-key", "missing_api_key"),
        ("Basic alpha-key", "missing_api_key"),
        ("Bearer", "missing_api_key"),
        ("Bearer alpha-ke", "invalid_api_key"),
        ("Bearer alpha-key,beta-key", "invalid_api_key"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/files", "/v1/models", "/v1/none", "/v1"])
def test_nothing_else_opens(guarded: httpx.Client, path: str, header: str | None, code: str) -> None:
    answer = guarded.get(path, headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == code


def test_a_refused_upload_is_not_read(serve: Serve) -> None:
    service = FakeService()
    answer = serve(service, api_keys=KEYS).post("/v1/files", files={"file": ("a.md", b"x" * 100_000)})
    assert answer.status_code == 401
    assert not service.files


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/metrics", "/openapi.json"])
def test_only_v1_is_guarded(guarded: httpx.Client, path: str) -> None:
    assert guarded.get(path).status_code == 200


def test_without_keys_everything_is_open(serve: Serve) -> None:
    assert serve(FakeService()).get("/v1/models").status_code == 200
