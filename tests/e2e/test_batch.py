"""`kvfuse precompute` on the real engine: killed in the middle, resumed, complete; deleting leaves no byte of K/V."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from app import selfcheck
from app.batch import Batch, BatchOptions, find_files
from app.config import Settings, load_settings
from app.dry_run import Action, plan_batch
from app.jobs import running
from app.service import KvfuseService
from store.keys import ChunkKey
from store.tiers.directory import SUFFIX

pytestmark = pytest.mark.e2e

HANDBOOK = Path(__file__).parents[2] / "examples" / "handbook"
SHARED = "# Rules\n\nEvery badge is returned at the desk on the last day. Nobody keeps one over the weekend.\n"
START_S = 600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight documents of several passages, two of one equal passage, and one that cannot be read."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for file in sorted(HANDBOOK.glob("*.md"))[:8]:
        (folder / file.name).write_text(file.read_text(encoding="utf-8")[:1500], encoding="utf-8")
    (folder / "one.md").write_text(SHARED)
    (folder / "two.md").write_text(f"{SHARED}\n")
    (folder / "torn.pdf").write_bytes(b"%PDF-1.4 torn")
    return folder


@pytest.fixture
def settings(tmp_path: Path, kvfuse_home: Path, tmpfs: Path) -> Settings:
    home = tmp_path / "home"
    home.mkdir()
    (home / "models").symlink_to(kvfuse_home / "models")
    return load_settings(
        home=home,
        memory_dir=tmpfs / "batch",
        kv_cache_gib=0.25,
        max_model_len=1024,
        passage_tokens=128,
        ingest_workers=2,
    )


def rows(settings: Settings, query: str) -> list[tuple[str, ...]]:
    """What the catalogue says; nothing before it is made."""
    try:
        with sqlite3.connect(f"file:{settings.home / 'catalog.sqlite'}?mode=ro", uri=True) as db:
            return db.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


def stages(settings: Settings) -> Counter[str]:
    return Counter(stage for (stage,) in rows(settings, "SELECT stage FROM documents"))


def chunks(settings: Settings) -> set[str]:
    tiers = (settings.memory_dir, settings.disk_dir)
    return {file.name.removesuffix(SUFFIX) for tier in tiers for file in tier.rglob(f"*{SUFFIX}")}


def killed_run(settings: Settings, folder: Path) -> None:
    """The command in a process of its own, killed with its engine once some documents are ready and some are not."""
    names = ("home", "memory_dir", "kv_cache_gib", "max_model_len", "passage_tokens", "ingest_workers")
    flags = [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(settings, name)))]
    command = [sys.executable, "-m", "app.cli", "precompute", str(folder), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + START_S
    try:
        while stages(settings)["ready"] < 3:
            assert process.poll() is None, "the run ended before it was killed"
            assert time.monotonic() < deadline, "no document became ready"
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.timeout(1200)  # a minute on two idle cores
async def test_a_killed_run_is_resumed_and_deleting_leaves_nothing(settings: Settings, folder: Path) -> None:
    files = list(find_files([folder], BatchOptions()))
    killed_run(settings, folder)
    before = stages(settings)["ready"]
    assert 3 <= before < 10, "the run was not killed in the middle"
    async with running(settings) as service:
        summary = await Batch(service.ingestor, service.catalog, BatchOptions()).run(files)
        assert (summary.files, summary.documents, len(summary.failed)) == (11, 10, 1)
        assert summary.unchanged >= before
        assert "torn.pdf" in summary.failed[0].reason
        assert stages(settings) == {"ready": 10, "failed": 1}
        keys = [key for (key,) in rows(settings, "SELECT chunk_key FROM passages")]
        assert len(keys) == len(set(keys)) + 1, "the equal passage of two documents is one chunk"
        assert chunks(settings) >= set(keys)
        own = chunks(settings) - set(keys)
        assert len(own) == len(selfcheck._TEXTS) + 1, "of no passage are only the gate's texts and the usual head"
        plan = await plan_batch(settings, files, BatchOptions())
        assert Counter(file.action for file in plan.files) == {Action.SKIP: 10, Action.KNOWN_FAILURE: 1}
        service.store.delete(ChunkKey(keys[0]))
        plan = await plan_batch(settings, files, BatchOptions())
        assert sum(file.passages_missing for file in plan.files if file.action is Action.RESTORE) > 0
        again = await Batch(service.ingestor, service.catalog, BatchOptions()).run(files)
        assert (again.documents, again.raw_bytes > 0) == (10, True)
        assert chunks(settings) == own | set(keys)
        await delete_all(service, keys)
        assert chunks(settings) == own
        assert rows(settings, "SELECT chunk_key FROM orphans") == []


async def delete_all(service: KvfuseService, keys: list[str]) -> None:
    """Delete every document; what another one still needs stays until then."""
    shared = next(key for key, count in Counter(keys).items() if count == 2)
    for file in await service.list_files():
        await service.delete_file(file.id)
        if file.filename == "two.md":
            assert shared in chunks(service._settings)
