"""The engine's benchmarks on their smallest sizes: every row has figures, every bar a value."""

from pathlib import Path

import pytest

from app.eval.bench.load import LoadCase, measure_load
from app.eval.bench.quality import QualityCase, measure_quality
from app.eval.bench.result import BenchResult
from app.eval.bench.ttft import TtftCase, measure_ttft
from app.eval.readme import END, START, rewrite
from tests.e2e.lab import Lab, measuring

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def rows(result: BenchResult, table: str) -> dict[str, dict[str, float]]:
    """Medians by row and figure."""
    return {
        row.name: {name: figure.median for name, figure in row.figures.items()}
        for row in result.rows
        if row.table == table
    }


async def test_time_to_first_token(lab: Lab, tmp_path: Path) -> None:
    result = await measure_ttft(measuring(lab), TtftCase(lengths=(600, 1000), split_at=1000, rounds=1))
    split = rows(result, "1k, split")
    assert split["nothing recomputed"]["recomputed"] == 0
    assert 0.04 <= split["boundary 5 %"]["recomputed"] / 1000 <= 0.06
    assert split["hybrid 10 %"]["recomputed"] < split["hybrid 15 %"]["recomputed"] <= 150
    for way in ("hybrid 15 %", "hybrid 15 %, stored raw"):
        assert split[way]["reused"] > 0
    assert rows(result, "time to first token")["ordinary prefill"]["1k"] == split["ordinary prefill"]["all"]
    assert all(bar.value > 0 for bar in result.bars)
    result.save(tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text(f"{START}\n{END}\n")
    rewrite(readme, tmp_path)
    assert "| time to first token | 600 | 1k |" in readme.read_text()


async def test_quality(lab: Lab) -> None:
    result = await measure_quality(measuring(lab), QualityCase(questions=1, data=("planted-needle:3x60",), kl_tokens=2))
    assert set(rows(result, "nothing recomputed")) == {"naive", "none"}
    judged = rows(result, "15% recomputed")
    assert set(judged) == {"cacheblend", "boundary", "deviation", "variance", "query", "hybrid"}
    assert all(found["KL, mean"] > 0 for found in judged.values())
    assert len(result.bars) == 4


async def test_load(lab: Lab) -> None:
    case = LoadCase(2, 3, documents=5, passages=(2, 3), answer_tokens=3, streams=1, stream_tokens=8, arrival_s=0.05)
    result = await measure_load(measuring(lab), case)
    for table in {row.table for row in result.rows} - {"interference"}:
        assert [row["requests/s"] > 0 for row in rows(result, table).values()] == 4 * [True]
    assert len(rows(result, "interference")) == 5
    assert len(result.bars) == 2 * 3
