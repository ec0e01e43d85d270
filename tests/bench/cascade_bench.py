"""Issue 6's numbers: which passages the cascade passes on, and the likelihood scorer over stored KV."""

from pathlib import Path

import pytest

from app.config import load_settings
from app.eval.bench.registry import find_bench


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_cascade(kvfuse_home: Path) -> None:
    result = find_bench("cascade").run(load_settings(home=kvfuse_home))
    print(f"\n{result.table()}\nwritten to {result.save()}")
    rows = {row.name: row for row in result.rows}
    for name in ("handbook (1,550)", "xquad lists"):  # one passage answers: it must come first more often than before
        ours, baseline = rows[f"{name}: zsum3, top 3"].figures, rows[f"{name}: RRF, top 3"].figures
        assert ours["R@1"].median > baseline["R@1"].median, f"{name}: reranking does not help"
