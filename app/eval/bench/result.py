"""BenchResult: the one form in which every benchmark reports, as JSON and as a table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from app.eval.machine import describe_machine

SCHEMA = "kvfuse-bench/1"
RESULTS = Path("bench-results")


@dataclass(frozen=True)
class Figure:
    """A measured figure: median of `n` repetitions, least and greatest of them."""

    median: float
    low: float
    high: float
    n: int
    unit: str

    @classmethod
    def of(cls, values: Sequence[float], unit: str) -> "Figure":
        """Summarise repetitions; raises ValueError when there are none."""
        if not values:
            raise ValueError("a figure needs at least one repetition")
        return cls(median(values), min(values), max(values), len(values), unit)

    def __str__(self) -> str:
        if self.n == 1:
            return f"{_short(self.median)} {self.unit}".rstrip()
        return f"{_short(self.median)} ({_short(self.low)}-{_short(self.high)}) {self.unit}".rstrip()


@dataclass(frozen=True)
class Row:
    """One measured case; a `baseline` row is what others are compared with; rows of one `table` stand together."""

    name: str
    figures: Mapping[str, Figure]
    baseline: bool = False
    table: str = ""


@dataclass(frozen=True)
class Bar:
    """A goal: `figure` should be at least or at most `limit`."""

    claim: str
    value: float
    limit: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{'met ' if self.met else 'MISS'} {self.claim}: {_short(self.value)} (goal {sign} {_short(self.limit)})"


@dataclass(frozen=True)
class BenchResult:
    """One benchmark's outcome. `settings` says what was run, `notes` what a reader must know."""

    bench: str
    title: str
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The documented form, machine included."""
        body = asdict(self)
        body["bars"] = [asdict(bar) | {"met": bar.met} for bar in self.bars]
        return {"schema": SCHEMA, "machine": describe_machine(), **body}

    def save(self, folder: Path = RESULTS) -> Path:
        """Write `<bench>.json` and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.bench}.json"
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        return path

    def table(self) -> str:
        """Return rows, bars and notes for a terminal."""
        names = dict.fromkeys(row.table for row in self.rows)
        tables = [line for name in names for line in _table(name, [row for row in self.rows if row.table == name])]
        return "\n".join([self.title, *tables, *map(str, self.bars), *self.notes])


def _table(name: str, rows: Sequence[Row]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows for column in row.figures))
    cells = [[name, *columns]] + [
        [row.name, *(str(row.figures[column]) if column in row.figures else "-" for column in columns)] for row in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns) + 1)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]


def _short(value: float) -> str:
    """Three significant digits, without exponents for ordinary sizes."""
    if value == 0 or not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
