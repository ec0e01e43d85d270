"""Engines for the end-to-end tests: started once a session, on stores of their own."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.engine_local import LocalEngine
from app.language import Language
from store.config import StoreConfig
from tests.e2e.lab import FACTS, Lab, engine_config


@pytest.fixture(scope="session")
def tmpfs() -> Iterator[Path]:
    """A folder on tmpfs where the machine has one."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="kvfuse-test-", dir=shared if shared.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def lab(model_dir: Path, tmpfs: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """The bf16 engine. Its batches are small, so that long passages and recomputes are cut into several."""
    store = StoreConfig(tmpfs / "lab", tmp_path_factory.mktemp("lab-disk"))
    language = Language.load(model_dir, "bfloat16")
    engine = LocalEngine(engine_config(language, store, max_num_batched_tokens=512))
    await engine.start()
    assert engine.fusable, engine.refusal
    lab = Lab(engine, language, store)
    lab.passages = await lab.save(FACTS)
    yield lab
    await engine.stop()
