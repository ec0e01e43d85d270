"""Issue 3's numbers of the codec: savings and speed of every chain beside plain coders and the rival's layout."""

from pathlib import Path

import pytest

from app.config import load_settings
from app.eval.bench.registry import find_bench


@pytest.mark.bench
@pytest.mark.timeout(600)
def test_codec(kvfuse_home: Path) -> None:
    result = find_bench("codec").run(load_settings(home=kvfuse_home))
    print(f"\n{result.table()}\nwritten to {result.save()}")
    saved = {row.name: row.figures["saved"].median for row in result.rows}
    assert saved["a4-deflate, SmolLM2, 512 tokens"] >= 33.5
    assert any(row.baseline for row in result.rows)
