"""Issue 5's times to first token: fused requests against an ordinary prefill, by length of the context."""

from pathlib import Path

import pytest

from app.config import load_settings
from app.eval.bench.registry import find_bench


@pytest.mark.bench
@pytest.mark.timeout(900)
def test_ttft(kvfuse_home: Path) -> None:
    result = find_bench("ttft").run(load_settings(home=kvfuse_home))
    print(f"\n{result.table()}\nwritten to {result.save()}")
    for row in result.rows:
        if "reused" in row.figures:
            assert row.figures["reused"].median > 0, f"{row.name} reused nothing"
