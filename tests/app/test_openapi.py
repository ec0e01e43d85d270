"""Generated requests against the API's own description: whatever comes, the answer is one that is described."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.config import load_settings
from app.main import create_app
from tests.app.conftest import running
from tests.app.fakes import FakeService

schema = schemathesis.openapi.from_dict(create_app(load_settings(), FakeService()).openapi())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(FakeService(), tmp_path_factory.mktemp("home")) as base:
        yield base


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_any_request_gets_a_described_answer(case: schemathesis.Case, url: str) -> None:
    case.call_and_validate(
        base_url=url,
        checks=[not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance],
    )
