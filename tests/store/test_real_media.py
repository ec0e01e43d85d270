"""Media that are really full or read-only: a tmpfs of 16 MiB under a tier that believes in more.

The tmpfs is mounted in a namespace of its own, by a child process, and is gone with it.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from store import KVChunk, KVDType, KVLayout, LookupResult, StoreConfig, StoreFull, TieredStore, chunk_key
from store.deflate import Backend
from tests.store.conftest import FINGERPRINT, gaussian
from tests.store.files import read_all

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MOUNT = 'mount -t tmpfs -o size=16m kvfuse "$0"'


def chunk(seed: int, tokens: int = 8000) -> KVChunk:
    layout = KVLayout(layers=2, kv_heads=2, head_dim=8, dtype=KVDType.BF16)
    return KVChunk(chunk_key(FINGERPRINT, "", [seed, tokens]), FINGERPRINT, layout, 0, gaussian(layout, tokens, seed))


def one_full_tier(small: Path, roomy: Path, name: str) -> None:
    """The tier on the small medium makes room chunk by chunk; the other one has everything."""
    folders = {"memory": roomy / "memory", "disk": roomy / "disk"} | {name: small / name}
    config = StoreConfig(folders["memory"], folders["disk"], 1 << 28, 1 << 28, backend=Backend.SOFTWARE, threads=1)
    chunks = [chunk(seed) for seed in range(40)]
    with TieredStore(config) as store:
        for one in chunks:
            assert store.put(one).created
        store.settle()
        for one in chunks:
            np.testing.assert_array_equal(read_all(store.open(one.key, FINGERPRINT) or pytest.fail("a miss")), one.data)
        stats = store.stats()
        assert stats.counters[f"{name}_write_errors"] > 0
        assert 0 < stats.tiers[name].bytes <= 16 << 20
        assert list((small / name / "tmp").iterdir()) == []


def no_room_anywhere(small: Path) -> None:
    """What fits nowhere is refused, and the rest goes on."""
    config = StoreConfig(small / "memory", small / "disk", 1 << 28, 1 << 28, backend=Backend.SOFTWARE, threads=1)
    with TieredStore(config) as store:
        with pytest.raises(StoreFull):
            store.put(chunk(0, tokens=250_000))
        assert store.put(chunk(1)).created
        assert store.open(chunk(1).key, FINGERPRINT) is not None
        assert store.stats().counters["refusals"] == 1


def a_read_only_disk(small: Path, roomy: Path) -> None:
    """What is there is served; what is new stays in memory."""
    config = StoreConfig(roomy / "memory", small / "disk", 1 << 28, 1 << 28, backend=Backend.SOFTWARE, threads=1)
    with TieredStore(config) as store:
        store.put(chunk(0))
        store.control.evict([chunk(0).key], "memory")
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with TieredStore(config) as store:
        served = store.open(chunk(0).key, FINGERPRINT) or pytest.fail("a miss")
        np.testing.assert_array_equal(read_all(served), chunk(0).data)
        assert store.put(chunk(1)).created
        assert store.lookup(chunk(1).key) is LookupResult.MEMORY
        assert store.stats().counters["disk_write_errors"] > 0
        assert store.stats().counters["disk_refusals"] == 1


CASES: dict[str, Callable[[Path, Path], None]] = {
    "memory": lambda small, roomy: one_full_tier(small, roomy, "memory"),
    "disk": lambda small, roomy: one_full_tier(small, roomy, "disk"),
    "both": lambda small, roomy: no_room_anywhere(small),
    "read-only": a_read_only_disk,
}


@pytest.mark.parametrize("case", CASES)
def test_a_medium_at_its_end(case: str, tmp_path: Path) -> None:
    small, roomy = tmp_path / "small", tmp_path / "roomy"
    small.mkdir()
    roomy.mkdir()
    tried = subprocess.run([*NAMESPACE, MOUNT, str(small)], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {tried.stderr.strip()}")
    work = f'{MOUNT} && exec "$1" -m tests.store.test_real_media "$2" "$0" "$3"'
    command = [*NAMESPACE, work, str(small), sys.executable, case, str(roomy)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]


if __name__ == "__main__":
    CASES[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
