"""Issue 3's numbers of the store: reads beside decoding alone, and what kills and eight processes leave of it."""

from pathlib import Path

import pytest

from app.config import load_settings
from app.eval.bench.registry import find_bench


@pytest.mark.bench
@pytest.mark.timeout(600)
def test_store(kvfuse_home: Path) -> None:
    result = find_bench("store").run(load_settings(home=kvfuse_home))
    print(f"\n{result.table()}\nwritten to {result.save()}")
    assert [bar for bar in result.bars if not bar.met] == []
