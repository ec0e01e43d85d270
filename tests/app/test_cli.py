import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import app
from app import cli
from app.batch import BatchOptions
from app.config import Settings
from app.errors import InvalidRequest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: exit code, output, errors."""

    def start(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kvfuse", *arguments])
        monkeypatch.setattr(logging.root, "handlers", [])  # commands set logging up: the suite gets its own back
        with pytest.raises(SystemExit) as exit:
            cli.main()
        captured = capsys.readouterr()
        return int(exit.value.code or 0), captured.out, captured.err

    return start


class Jobs:
    """Stands where the jobs are and keeps what the commands passed: the real ones bring the engine in."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[Settings, Any]] = {}
        self.error: BaseException | None = None

    def precompute(self, settings: Settings, paths: list[Path], options: BatchOptions, *rest: object) -> None:
        self.calls["precompute"] = (settings, (paths, options, *rest))

    def ask(self, settings: Settings, question: str, url: str | None = None) -> None:
        self.calls["ask"] = (settings, (question, url))
        if self.error is not None:
            raise self.error

    def doctor(self, settings: Settings) -> dict[str, Any]:
        return {"ok": False, "engine": "no answer"}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    stand_in = Jobs()
    monkeypatch.setattr(app, "jobs", stand_in, raising=False)
    return stand_in


def test_every_setting_is_a_flag(run: Run) -> None:
    code, out, _ = run("serve", "--help")
    assert code == 0
    missing = [name for name in Settings.model_fields if f"--{name.replace('_', '-')}" not in out]
    assert not missing


def test_flags_reach_the_job_as_settings(run: Run, jobs: Jobs, tmp_path: Path) -> None:
    code, _, err = run("precompute", str(tmp_path), "--top-k", "9", "--no-enforce-eager", "--home", str(tmp_path))
    assert (code, err) == (0, "")
    settings, (paths, *_) = jobs.calls["precompute"]
    assert (settings.top_k, settings.enforce_eager, settings.home) == (9, False, tmp_path)
    assert paths == [tmp_path]


def test_options_of_a_batch_reach_the_job(run: Run, jobs: Jobs, tmp_path: Path) -> None:
    flags = ("--glob", "*.md", "--no-recursive", "--no-resume", "--retry-failed", "--dry-run", "--report", "out.json")
    assert run("precompute", str(tmp_path), *flags)[0] == 0
    _, (_, options, dry_run, report) = jobs.calls["precompute"]
    assert options == BatchOptions("*.md", recursive=False, resume=False, retry_failed=True)
    assert (dry_run, report) == (True, Path("out.json"))


def test_short_forms_of_settings_for_a_batch(run: Run, jobs: Jobs, tmp_path: Path) -> None:
    assert run("precompute", str(tmp_path), "--workers", "9", "--single-pass")[0] == 0
    settings, _ = jobs.calls["precompute"]
    assert (settings.ingest_workers, settings.ingest_passes) == (9, 1)


def test_ask_passes_question_and_url(run: Run, jobs: Jobs) -> None:
    assert run("ask", "How many days?", "--url", "http://127.0.0.1:1")[0] == 0
    assert jobs.calls["ask"][1] == ("How many days?", "http://127.0.0.1:1")


def test_doctor_prints_json_and_fails_when_a_check_fails(run: Run, jobs: Jobs) -> None:
    code, out, _ = run("doctor")
    assert code == 1
    assert json.loads(out) == {"ok": False, "engine": "no answer"}


@pytest.mark.parametrize("arguments", [("serve", "--port", "x"), ("ask", "q", "--config", "/none.yaml")])
def test_bad_settings_end_in_one_line(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("kvfuse: ")
    assert err.count("\n") == 1


def test_a_users_error_is_no_traceback(run: Run, jobs: Jobs) -> None:
    jobs.error = InvalidRequest("There are no documents")
    assert run("ask", "why?") == (1, "", "kvfuse: There are no documents\n")


def test_interrupt_is_no_traceback(run: Run, jobs: Jobs) -> None:
    jobs.error = KeyboardInterrupt()
    assert run("ask", "why?")[0] == 130


def test_a_missing_path_is_named(run: Run) -> None:
    code, _, err = run("precompute", "/no/such/folder")
    assert code == 2
    assert "/no/such/folder" in err


@pytest.mark.parametrize("name", ["app", "cascade", "fuse", "store"])
def test_our_packages_are_the_ones_imported(name: str) -> None:
    module: ModuleType = __import__(name)
    assert module.__file__ is not None
    assert Path(module.__file__).parent == Path(__file__).parents[2] / name


def test_the_installed_command_runs_without_loading_the_engine() -> None:
    code = "import sys; import app.cli; sys.exit('vllm' in sys.modules or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    command = Path(sys.executable).with_name("kvfuse")
    assert subprocess.run([command, "version"], capture_output=True, text=True, check=True).stdout.strip()
