"""Issue 5's numbers under load: throughput of 8 clients, and the gaps of running answers while requests arrive."""

from pathlib import Path

import pytest

from app.config import load_settings
from app.eval.bench.registry import find_bench


@pytest.mark.bench
@pytest.mark.timeout(600)
def test_load(kvfuse_home: Path) -> None:
    result = find_bench("load").run(load_settings(home=kvfuse_home))
    print(f"\n{result.table()}\nwritten to {result.save()}")
    assert all(row.figures["requests/s"].median > 0 for row in result.rows if "requests/s" in row.figures)
