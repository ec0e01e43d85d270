"""Issue 5's divergences: every recompute policy against an ordinary prefill, beside CacheBlend and plain reuse."""

from pathlib import Path

import pytest

from app.config import load_settings
from app.eval.bench.registry import find_bench


@pytest.mark.bench
@pytest.mark.timeout(900)
def test_quality(kvfuse_home: Path) -> None:
    result = find_bench("quality").run(load_settings(home=kvfuse_home))
    print(f"\n{result.table()}\nwritten to {result.save()}")
    kl = {row.name: row.figures["KL, mean"].median for row in result.rows}
    assert kl["hybrid"] < kl["cacheblend"] < kl["naive"]
