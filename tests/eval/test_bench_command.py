"""`kvfuse bench` as a user calls it."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.config import Settings
from app.eval.bench.cli import bench_cli
from app.eval.bench.registry import BENCHES, Size
from app.eval.bench.result import SCHEMA, BenchResult
from tests.eval.test_bench_results import RESULT


def test_a_benchmark_writes_its_table_and_its_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What codec measures takes half a minute and is no matter here: `make bench` runs it."""
    asked: list[Size] = []

    def measured(settings: Settings, size: Size) -> BenchResult:
        asked.append(size)
        return replace(RESULT, settings={"codec": settings.codec})

    monkeypatch.setattr("app.eval.bench.codec.run", measured)
    command = ["codec", "--size", "full", "--out", str(tmp_path), "--codec", "a4-zstd"]
    done = CliRunner().invoke(bench_cli, command)
    assert done.exit_code == 0, done.output
    assert asked == [Size.FULL]
    assert RESULT.table() in done.output
    assert str(tmp_path / "speed.json") in done.output
    written = json.loads((tmp_path / "speed.json").read_text())
    assert (written["schema"], written["settings"]) == (SCHEMA, {"codec": "a4-zstd"})
    assert written["machine"]["cores"] > 0
    assert [bar["met"] for bar in written["bars"]] == [True, False]


def test_what_there_is_not_is_refused() -> None:
    cli = CliRunner()
    assert cli.invoke(bench_cli, ["beauty"]).exit_code == 2
    assert cli.invoke(bench_cli, ["codec", "--size", "huge"]).exit_code == 2


def test_every_benchmark_has_its_module() -> None:
    for bench in BENCHES:
        assert callable(import_module(f"app.eval.bench.{bench.name}").run), bench.name
