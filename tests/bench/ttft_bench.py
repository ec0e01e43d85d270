"""Issue 2's numbers: a fused request over 10 passages of about 300 tokens against an ordinary prefill."""

from pathlib import Path

import pytest

from app.config import load_settings
from app.eval.bench.registry import find_bench


@pytest.mark.bench
@pytest.mark.timeout(600)
def test_ttft(kvfuse_home: Path) -> None:
    result = find_bench("ttft").run(load_settings(home=kvfuse_home))
    print(f"\n{result.table()}\nwritten to {result.save()}")
    assert {row.name for row in result.rows if row.baseline} == {"ordinary prefill"}
    for row in result.rows:
        if not row.baseline:
            assert row.figures["reused"].median > 0, f"{row.name} reused nothing"
