"""Folders made ready, whatever happens on the way."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.batch import BatchFile, BatchOptions, Pace, find_files
from app.engine_values import EngineError
from cascade.types import Stage
from tests.app import batch_child

DOCUMENTS = 2000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "documents" / "deep").mkdir(parents=True)
    return tmp_path / "documents"


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)


def stages(home: Path) -> dict[str, str]:
    with sqlite3.connect(home / "catalog.sqlite") as db:
        return dict(db.execute("SELECT filename, stage FROM documents"))


def ready(home: Path) -> int:
    try:
        return list(stages(home).values()).count(Stage.READY)
    except sqlite3.OperationalError:  # before the tables are made
        return 0


def start(home: Path, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.app.batch_child", str(home), str(folder), "0.0005"]
    return subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.timeout(900)  # half a minute on two idle cores
def test_a_large_folder_killed_twice_is_complete_and_without_duplicates(home: Path, folder: Path) -> None:
    for n in range(DOCUMENTS):
        target = folder / "deep" if n % 2 else folder
        (target / f"{n}.md").write_text(f"# Document {n}\n\nThe clerk of ward {n} files form {n + 7} before noon.")
    for share in (0.2, 0.6):
        process = start(home, folder)
        while ready(home) < share * DOCUMENTS:
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.05)
        process.kill()
        process.wait()
    summary = json.loads(start(home, folder).communicate()[0])
    assert (summary["files"], summary["documents"], summary["failed"]) == (DOCUMENTS, DOCUMENTS, [])
    assert summary["unchanged"] >= 0.6 * DOCUMENTS
    assert set(stages(home).values()) == {Stage.READY}
    with sqlite3.connect(home / "catalog.sqlite") as db:
        keys = [key for (key,) in db.execute("SELECT chunk_key FROM passages")]
        names = {name for (name,) in db.execute("SELECT filename FROM documents")}
    assert len(names) == DOCUMENTS
    assert len(keys) == len(set(keys)) == DOCUMENTS
    computed = (home / "computed").read_text().split()
    assert set(computed) == set(keys) == set(os.listdir(home / "chunks"))
    assert len(computed) == len(set(computed)), "a stored chunk was computed again"


async def test_a_bad_file_holds_up_no_other(home: Path, folder: Path) -> None:
    write(folder, good="Some text.", blank=" \n ", empty="")
    (folder / "torn.pdf").write_bytes(b"%PDF-1.4 torn")
    (folder / "photo.png").write_bytes(b"not looked at")
    summary = await batch_child.run(home, folder, 0)
    assert (summary.files, summary.documents) == (4, 1)
    reasons = {Path(failure.path).name: failure.reason for failure in summary.failed}
    assert set(reasons) == {"blank.txt", "empty.txt", "torn.pdf"}
    assert "cannot be read" in reasons["torn.pdf"]
    assert json.loads(summary.to_json())["failed"][0].keys() == {"path", "reason"}


async def test_known_failures_are_left_alone_unless_the_file_changes(home: Path, folder: Path) -> None:
    write(folder, blank=" \n ")
    first = await batch_child.run(home, folder, 0)
    again = await batch_child.run(home, folder, 0)
    assert again.failed == first.failed
    assert (first.unchanged, again.unchanged) == (0, 1)
    retried = await batch_child.run(home, folder, 0, BatchOptions(retry_failed=True))
    assert (retried.unchanged, retried.failed) == (0, first.failed)
    write(folder, blank="Text at last.")
    assert (await batch_child.run(home, folder, 0)).failed == ()


async def test_chunks_that_the_store_has_lost_are_stored_again(home: Path, folder: Path) -> None:
    write(folder, a="Some text.", b="Other text.")
    await batch_child.run(home, folder, 0)
    assert (await batch_child.run(home, folder, 0)).raw_bytes == 0
    lost, kept = sorted((home / "chunks").iterdir())
    lost.unlink()
    summary = await batch_child.run(home, folder, 0)
    assert (summary.unchanged, summary.failed) == (2, ())
    assert summary.raw_bytes > 0
    assert (home / "computed").read_text().split()[2:] == [lost.name]
    assert kept.exists()


async def test_chunks_that_cannot_be_stored_again_are_a_failure_with_its_reason(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*arguments: object) -> None:
        raise ExceptionGroup("", [EngineError("the disk is full")])

    write(folder, a="Some text.")
    await batch_child.run(home, folder, 0)
    monkeypatch.setattr(batch_child.SlowBank, "store_missing", refuse)
    (failure,) = (await batch_child.run(home, folder, 0)).failed
    assert failure.path.endswith("a.txt")
    assert failure.reason == "lost chunks could not be stored again: the disk is full"


async def test_a_changed_file_takes_the_place_of_what_it_held(home: Path, folder: Path) -> None:
    write(folder, a="Old text.", b="Other text.")
    await batch_child.run(home, folder, 0)
    write(folder, a="New text, longer.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_child.Store, "delete", lambda self, key: True)
        summary = await batch_child.run(home, folder, 0)
    assert (summary.unchanged, summary.documents) == (1, 2)
    with sqlite3.connect(home / "catalog.sqlite") as db:
        assert {text for (text,) in db.execute("SELECT text FROM documents")} == {"New text, longer.", "Other text."}


async def test_a_broken_version_in_between_is_passed_over(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_child.Store, "delete", lambda self, key: True)
    for text in ("Old text.", " \n ", "New text."):
        write(folder, a=text)
        await batch_child.run(home, folder, 0)
    assert list(stages(home).values()) == [Stage.READY]
    with sqlite3.connect(home / "catalog.sqlite") as db:
        assert db.execute("SELECT text FROM documents").fetchall() == [("New text.",)]


def test_the_time_to_go_follows_the_bytes_of_new_files() -> None:
    now = 0.0
    pace = Pace(1000, lambda: now)
    pace.seen(200, new=False)
    assert pace.left_s(0) is None
    pace.seen(300, new=True)
    pace.seen(300, new=True)
    now = 30.0
    assert pace.left_s(backlog=1) == pytest.approx(50), "300 bytes in 30 s, 500 to go"
    assert pace.describe(tokens=600, backlog=1) == "20 tokens/s, 00:50 to go"


def test_which_files_are_found(folder: Path) -> None:
    write(folder, a="x", b="x")
    write(folder / "deep", a="x")
    (folder / "c.md").write_text("x")
    (folder / "d.bin").write_text("x")

    def names(*paths: Path, **options: object) -> list[str]:
        return [file.name for file in find_files(paths, BatchOptions(**options))]  # type: ignore[arg-type]

    assert names(folder) == ["a.txt", "b.txt", "c.md", "deep/a.txt"]
    assert names(folder, recursive=False) == ["a.txt", "b.txt", "c.md"]
    assert names(folder, glob="*.md") == ["c.md"]
    assert names(folder / "a.txt", folder, glob="a*") == ["a.txt", "deep/a.txt"]
    assert list(find_files([folder / "d.bin"], BatchOptions())) == [BatchFile(folder / "d.bin", "d.bin")]
