"""What every suite shares: a clean environment and the two small models, prepared once."""

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
TEST_HOME = os.environ.pop("KVFUSE_TEST_HOME", None)
for name in [name for name in os.environ if name.startswith("KVFUSE_")]:
    del os.environ[name]


@pytest.fixture(scope="session")
def kvfuse_home() -> Path:
    """Home whose models the tests use: KVFUSE_TEST_HOME, or the user's own, so that models are prepared once."""
    return Path(TEST_HOME or "~/.cache/kvfuse").expanduser()


@pytest.fixture(scope="session")
def model_dir(kvfuse_home: Path) -> Path:
    """Folder of the packaged main model."""
    from app.models import prepare_models

    return prepare_models(kvfuse_home).llm


@pytest.fixture(scope="session")
def embedder_dir(kvfuse_home: Path) -> Path:
    """Folder of the packaged embedding model."""
    from app.models import prepare_models

    return prepare_models(kvfuse_home).embedder
