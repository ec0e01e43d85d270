"""The benchmarks of codec and store on something small: every row is there, and the promises are tested."""

import json
from pathlib import Path

import pytest

from app.eval.bench import churn
from app.eval.bench.codec import measure_codec
from app.eval.bench.result import BenchResult
from app.eval.bench.store import StoreCase, measure_store
from app.eval.errors import EvalError
from store import KVChunk, KVDType, KVLayout, chunk_key
from store.codec import chain_names
from tests.store.conftest import FINGERPRINT, gaussian


@pytest.fixture(scope="module")
def chunk() -> KVChunk:
    layout = KVLayout(layers=2, kv_heads=2, head_dim=64, dtype=KVDType.BF16)
    return KVChunk(chunk_key(FINGERPRINT, "", [1]), FINGERPRINT, layout, 0, gaussian(layout, 300))


def bars(result: BenchResult) -> dict[str, tuple[float, bool]]:
    return {bar.claim: (bar.value, bar.met) for bar in result.bars}


def test_every_chain_and_every_rival_is_measured(chunk: KVChunk) -> None:
    result = measure_codec({"small": chunk}, seconds=0)
    assert [row.name for row in result.rows if not row.baseline] == [f"{chain}, small" for chain in chain_names()]
    rivals = ("raw zlib-1", "raw igzip-1", "raw zstd-1", "rival: planes + zlib-6", "blosc2 shuffle+zstd-1", "zipnn")
    assert [row.name for row in result.rows if row.baseline] == [f"{name}, small" for name in rivals]
    saved, met = bars(result)["a4-deflate saves, everything counted, %"]
    assert 25 < saved == result.rows[1].figures["saved"].median
    assert met is (saved >= 33.5)


def test_a_coder_that_loses_something_is_no_result(chunk: KVChunk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.eval.bench.coders.zlib.decompress", lambda packed: b"")
    with pytest.raises(EvalError, match="raw zlib-1 is not lossless"):
        measure_codec({"small": chunk}, seconds=0)


def test_the_store_is_read_killed_and_hammered(chunk: KVChunk, tmp_path: Path) -> None:
    result = measure_store(chunk, StoreCase(kills=3, seconds=1), {"computing": [1.0]})
    assert bars(result)["kills survived"] == (3, True)
    assert bars(result)["pins left by 8 processes"] == (0, True)
    assert [row.name for row in result.rows][-1] == "computing"
    saved = json.loads(result.save(tmp_path).read_text())
    assert saved["settings"]["processes"]["hits"] > 0


def test_a_broken_promise_ends_the_benchmark(tmp_path: Path) -> None:
    """The children fail: the place of the memory tier is taken by a file."""
    (tmp_path / "memory").touch()
    with pytest.raises(churn.BrokenPromise, match=r"FileExistsError|NotADirectoryError"):
        churn.churned("hammer", tmp_path, 1, 2, 1)
