"""BenchResult: its JSON, its tables, and the README made of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.eval.bench.result import Bar, BenchResult, Figure, Row
from app.eval.errors import EvalError
from app.eval.readme import END, START, rewrite

RESULT = BenchResult(
    "speed",
    "Speed of things",
    (
        Row("slow", {"time": Figure.of([2.0, 3.0, 10.0], "s")}, baseline=True),
        Row("fast", {"time": Figure.of([0.5], "s"), "ratio": Figure.of([6.0], "x")}),
    ),
    (Bar("slow over fast", 6.0, 4.0, at_least=True), Bar("share", 0.2, 0.1, at_least=False)),
    notes=("A note.",),
)


def test_a_figure_is_the_median_and_the_range() -> None:
    assert Figure.of([10.0, 2.0, 3.0], "s") == Figure(3.0, 2.0, 10.0, 3, "s")
    assert str(Figure.of([0.12345, 0.2, 0.3], "s")) == "0.2 (0.123-0.3) s"
    assert str(Figure.of([12345.6], "tokens")) == "12346 tokens"
    with pytest.raises(ValueError, match="at least one repetition"):
        Figure.of([], "s")


def test_bars_say_whether_they_are_met() -> None:
    met, missed = RESULT.bars
    assert met.met
    assert not missed.met
    assert str(missed) == "MISS share: 0.2 (goal <= 0.1)"


def test_the_terminal_table_holds_every_figure() -> None:
    table = RESULT.table()
    for text in ("Speed of things", "3 (2-10) s", "0.5 s", "6 x", "met  slow over fast", "A note."):
        assert text in table


def test_readme_is_rewritten_between_the_markers_only(tmp_path: Path) -> None:
    RESULT.save(tmp_path / "results")
    (tmp_path / "results" / "other.json").write_text(json.dumps({"a": 1}))
    readme = tmp_path / "README.md"
    readme.write_text(f"above\n{START}\nold\n{END}\nbelow\n")
    rewrite(readme, tmp_path / "results")
    text = readme.read_text()
    assert text.startswith(f"above\n{START}\n")
    assert text.endswith(f"{END}\nbelow\n")
    assert "old" not in text
    assert "| slow (baseline) | 3 (2-10) s |  |" in text
    assert "| fast | 0.5 s | 6 x |" in text
    once = text
    rewrite(readme, tmp_path / "results")
    assert readme.read_text() == once


def test_tables_stand_apart_in_the_order_of_the_benchmarks(tmp_path: Path) -> None:
    parted = [replace(row, table=f"table of {row.name}") for row in RESULT.rows]
    for name in ("codec", "ttft", "aardvark"):
        replace(RESULT, bench=name, title=f"{name}!", rows=tuple(parted)).save(tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text(f"{START}\n{END}\n")
    rewrite(readme, tmp_path)
    text = readme.read_text()
    assert text.index("ttft!") < text.index("codec!") < text.index("aardvark!")
    assert "| table of slow | time |" in text
    assert "| table of fast | time | ratio |" in text
    assert replace(RESULT, rows=tuple(parted)).table().count("table of") == 2


def test_a_readme_without_markers_is_left_alone(tmp_path: Path) -> None:
    RESULT.save(tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text(f"{END}\n{START}\n")
    with pytest.raises(EvalError, match="has no line"):
        rewrite(readme, tmp_path)
    assert readme.read_text() == f"{END}\n{START}\n"


def test_no_result_is_an_error(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{START}\n{END}\n")
    with pytest.raises(EvalError, match="no benchmark has been run"):
        rewrite(readme, tmp_path)
