"""Random work on one store in forked processes, to be killed or to run side by side; run as a program of its own.

    python -m app.eval.bench.churn kill ROOT SEED KILLS
    python -m app.eval.bench.churn hammer ROOT SEED PROCESSES SECONDS

The program itself has no threads and no store, so that forking is safe; every check happens in a child. Prints a JSON
object of what was done; any broken promise is a traceback and an exit code.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import store.tiers.remote  # noqa: F401  # before forking
from app.eval.bench.chunks import FINGERPRINT, gaussian
from app.eval.errors import EvalError
from store import ChunkKey, KVChunk, KVDType, KVLayout, StoreConfig, TieredStore, chunk_key
from store.deflate import Backend
from store.tier import Tier
from store.wrapped import WrappedTier

LAYOUT = KVLayout(layers=2, kv_heads=2, head_dim=8, dtype=KVDType.BF16)
KEYS = 24
TOKENS = 300
CHUNK_BYTES = TOKENS * LAYOUT.token_bytes


class BrokenPromise(EvalError):
    """The store served, lost or left behind what it must not."""

    default_code = "store_broken"


def churned(mode: str, root: Path, *numbers: float) -> dict[str, int]:
    """Run this program; returns what was done. Raises BrokenPromise."""
    command = [sys.executable, "-m", __name__, mode, str(root), *map(str, numbers)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise BrokenPromise(result.stderr[-3000:])
    outcome: dict[str, int] = json.loads(result.stdout)
    return outcome


def config_of(root: Path) -> StoreConfig:
    """Memory for a few chunks, disk for all; no compiled codec, so that a forked child starts in milliseconds."""
    return StoreConfig(
        root / "memory", root / "disk", 6 * CHUNK_BYTES, 1 << 26, codec="planes-deflate", backend=Backend.SOFTWARE,
        threads=1, remote_url=(root / "remote").as_uri(), policy="gdsf",
    )  # fmt: skip


def chunk(seed: int) -> KVChunk:
    """One of the chunks that are worked with."""
    return KVChunk(chunk_key(FINGERPRINT, "", [seed]), FINGERPRINT, LAYOUT, 17, gaussian(LAYOUT, TOKENS, seed))


CHUNKS = [chunk(seed) for seed in range(KEYS)]


class SlowTier(WrappedTier):
    """Takes a moment within every write, so that a kill finds half-written files."""

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        """See `Tier.write`."""
        return self.inner.write(key, _slowly(parts))


def _slowly(parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    for part in parts:
        yield part[: len(part) // 2]
        time.sleep(0.0003)
        yield part[len(part) // 2 :]


def churn(
    config: StoreConfig,
    seed: int,
    seconds: float,
    log: Callable[[str], object],
    wrap: Callable[[Tier], Tier] = lambda tier: tier,
) -> dict[str, int]:
    """Random verbs until the time is over; what is read is compared."""
    rng = random.Random(seed)
    counts = {"hits": 0, "misses": 0, "puts": 0, "deletes": 0, "moves": 0, "pinned": 0}
    until = time.monotonic() + seconds
    with TieredStore(config, wrap) as store:
        while time.monotonic() < until:
            _step(store, rng, rng.randrange(KEYS), counts, log)
        store.settle()
    return counts


def _step(
    store: TieredStore, rng: random.Random, which: int, counts: dict[str, int], log: Callable[[str], object]
) -> None:
    key = CHUNKS[which].key
    action = rng.choices(("get", "put", "delete", "move", "pin", "rebuild"), (40, 25, 8, 20, 6, 1))[0]
    if action == "get":
        reader = store.open(key, FINGERPRINT)
        counts["misses" if reader is None else "hits"] += 1
        if reader is not None:
            np.testing.assert_array_equal(reader.read(), CHUNKS[which].data)
    elif action == "put":
        store.put(CHUNKS[which])
        log(f"put {which}\n")
        counts["puts"] += 1
    elif action == "delete":
        log(f"delete {which}\n")
        store.delete(key)
        counts["deletes"] += 1
    elif action == "move":
        _move(store, rng, key)
        counts["moves"] += 1
    elif action == "pin":
        with store.control.pinned([key]):
            store.control.demote([key])
        counts["pinned"] += 1
    else:
        store.control.rebuild_index()


def _move(store: TieredStore, rng: random.Random, key: ChunkKey) -> None:
    if rng.random() < 0.5:
        store.control.demote([key], rng.choice(("disk", "remote")))
    else:
        store.control.promote([key], rng.choice(("memory", "disk")))


def check(config: StoreConfig, promised: set[int]) -> dict[str, int]:
    """After a start: no temporary file, every chunk exact or a counted miss, and none missing that was promised."""
    with TieredStore(config) as store:
        for folder in (config.memory_dir, config.disk_dir):
            _require(not list((folder / "tmp").iterdir()), f"temporary files stay in {folder}")
        readers = [store.open(one.key, FINGERPRINT) for one in CHUNKS]
        for one, reader in zip(CHUNKS, readers, strict=True):
            if reader is not None:
                np.testing.assert_array_equal(reader.read(), one.data)
        missing = {which for which, reader in enumerate(readers) if reader is None}
        _require(not missing & promised, f"promised and lost: {missing & promised}")
        stats = store.stats()
        _require(stats.misses == ({"absent": len(missing)} if missing else {}), f"misses {stats.misses}")
        return {"chunks": KEYS - len(missing), "recovered": stats.counters["recovered_temporaries"]}


def forked(work: Callable[[], Any], result: int | None = None) -> int:
    """Run `work` in a child, its result written to the descriptor `result`; returns the child's pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        value = work()
        if result is not None:
            os.write(result, json.dumps(value).encode() + b"\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def kill(root: Path, seed: int, kills: int) -> dict[str, int]:
    """Kill a working child at a random moment, look at what is left, go on from there."""
    config, rng = config_of(root), random.Random(seed)
    log = os.open(root / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    read, write = os.pipe()
    totals = {"kills": 0, "recovered": 0, "puts": 0}
    lines: list[str] = []
    for number in range(kills):
        child_seed = rng.getrandbits(32)
        child = forked(lambda: churn(config, child_seed, 60, lambda line: os.write(log, line.encode()), SlowTier))  # noqa: B023
        _await_lines(root / "log", len(lines) + rng.randrange(4), child)
        time.sleep(rng.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        _require(_exit_code(child) == -signal.SIGKILL, "the child failed by itself")
        lines = (root / "log").read_text().splitlines()
        promised = _promised(lines)
        checker = forked(lambda: check(config, promised), write)  # noqa: B023
        _require(_exit_code(checker) == 0, f"after kill {number}")
        totals["recovered"] += json.loads(os.read(read, 4096))["recovered"]
        totals["kills"], totals["puts"] = number + 1, sum(line.startswith("put") for line in lines)
    return totals


def _promised(lines: list[str]) -> set[int]:
    """Return the chunks that were put and not deleted since."""
    promised: set[int] = set()
    for verb, which in map(str.split, lines):
        (promised.add if verb == "put" else promised.discard)(int(which))
    return promised


def _await_lines(log: Path, count: int, child: int) -> None:
    """Wait until the child has come that far, however fast the machine is, or has ended."""
    while len(log.read_bytes().splitlines()) < count:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)


def hammer(root: Path, seed: int, processes: int, seconds: float) -> dict[str, int]:
    """Many processes on one store; afterwards nothing is corrupt and no pin is left."""
    config = config_of(root)
    read, write = os.pipe()
    children = [
        forked(lambda: churn(config, seed + number, seconds, lambda line: None), write)  # noqa: B023
        for number in range(processes)
    ]
    _require([_exit_code(child) for child in children] == [0] * processes, "a process failed")
    results = [json.loads(line) for line in os.read(read, 1 << 16).splitlines()]
    end = forked(lambda: check(config, set()) | _aftermath(config), write)
    _require(_exit_code(end) == 0, "the store is not whole afterwards")
    left: dict[str, int] = json.loads(os.read(read, 4096))
    return {name: sum(result[name] for result in results) for name in results[0]} | left


def _aftermath(config: StoreConfig) -> dict[str, int]:
    with TieredStore(config) as store:
        store.settle()
        store.control.rebuild_index()
        stats = store.stats()
        for name, tier in stats.tiers.items():
            sizes = [path.stat().st_size for path in (config.disk_dir.parent / name).rglob("*.kvc")]
            _require((tier.chunks, tier.bytes) == (len(sizes), sum(sizes)), f"the index is wrong about {name}")
        _require(stats.pins == 0, f"{stats.pins} pins are left")
        return {"pins": stats.pins}


def _exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _require(condition: bool, promise: str) -> None:
    if not condition:
        raise BrokenPromise(promise)


_MODES: dict[str, Callable[..., dict[str, int]]] = {"kill": kill, "hammer": hammer}

if __name__ == "__main__":
    mode, root, seed, *numbers = sys.argv[1:]
    print(json.dumps(_MODES[mode](Path(root), int(seed), *map(int, numbers))))
