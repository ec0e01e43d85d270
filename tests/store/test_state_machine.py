"""Any sequence of verbs, crashes and losses: what is served is bit-exact, and what should be there is."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from store import KVChunk, KVDType, KVLayout, LookupResult, StoreConfig, TieredStore, chunk_key
from store.control import Outcome
from store.deflate import Backend
from tests.store.conftest import FINGERPRINT, gaussian
from tests.store.files import encode, read_all

LAYOUT = KVLayout(layers=2, kv_heads=2, head_dim=8, dtype=KVDType.BF16)
CHUNKS = [
    KVChunk(chunk_key(FINGERPRINT, "", [seed]), FINGERPRINT, LAYOUT, 17, gaussian(LAYOUT, 40, seed))
    for seed in range(6)
]
SIZE = max(len(encode(chunk)) for chunk in CHUNKS)
WHICH = st.integers(0, len(CHUNKS) - 1)
TIERS = st.sampled_from(["memory", "disk", "remote"])


class StoreMachine(RuleBasedStateMachine):
    """Memory holds two chunks, disk three, the remote tier all. `kept` are the chunks that nothing may lose."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.kept: set[int] = set()
        self.pinned: set[int] = set()

    @initialize(policy=st.sampled_from(["lru", "gdsf"]))
    def begin(self, policy: str) -> None:
        self.config = StoreConfig(
            self.root / "memory",
            self.root / "disk",
            2 * SIZE,
            3 * SIZE,
            backend=Backend.SOFTWARE,
            threads=1,
            remote_url=(self.root / "remote").as_uri(),
            policy=policy,
        )
        self.store = TieredStore(self.config)

    @rule(which=WHICH)
    def put(self, which: int) -> None:
        self.store.put(CHUNKS[which])
        self.kept.add(which)

    @rule(which=WHICH)
    def get(self, which: int) -> None:
        reader = self.store.open(CHUNKS[which].key, FINGERPRINT)
        assert (reader is not None) or which not in self.kept
        if reader is not None:
            np.testing.assert_array_equal(read_all(reader), CHUNKS[which].data)

    @rule(which=WHICH, tier=TIERS)
    def promote(self, which: int, tier: str) -> None:
        self.store.settle()
        self.store.control.promote([CHUNKS[which].key], tier)

    @rule(which=WHICH, tier=TIERS)
    def demote(self, which: int, tier: str) -> None:
        self.store.settle()
        outcome = self.store.control.demote([CHUNKS[which].key], tier).outcomes[CHUNKS[which].key]
        assert (outcome is Outcome.PINNED) == (which in self.pinned)

    @rule(which=WHICH)
    def pin(self, which: int) -> None:
        self.store.control.pin([CHUNKS[which].key])
        self.pinned.add(which)

    @rule(which=WHICH)
    def unpin(self, which: int) -> None:
        self.store.control.unpin([CHUNKS[which].key])
        self.pinned.discard(which)

    @rule(which=WHICH)
    def evict(self, which: int) -> None:
        self.store.settle()
        if self.store.control.evict([CHUNKS[which].key]).outcomes[CHUNKS[which].key] is Outcome.DONE:
            assert self.store.lookup(CHUNKS[which].key) is LookupResult.MISS
            self.kept.discard(which)

    @rule(which=WHICH)
    def delete(self, which: int) -> None:
        self.store.settle()
        self.store.delete(CHUNKS[which].key)
        assert self.store.lookup(CHUNKS[which].key) is LookupResult.MISS
        self.kept.discard(which)
        self.pinned.discard(which)

    @rule()
    def crash(self) -> None:
        """Leave without closing, as a killed process does, and start anew."""
        self.store.settle()
        self.store = TieredStore(self.config)

    @rule()
    def lose_memory(self) -> None:
        self.store.close()
        shutil.rmtree(self.config.memory_dir)
        self.store = TieredStore(self.config)

    @rule()
    def lose_the_index(self) -> None:
        self.store.close()
        for path in self.config.disk_dir.glob("index*"):
            path.unlink()
        self.pinned.clear()
        self.store = TieredStore(self.config)
        self.store.settle()

    @rule()
    def rebuild(self) -> None:
        self.store.settle()
        self.store.control.rebuild_index()

    @invariant()
    def pinned_chunks_leave_nowhere(self) -> None:
        if hasattr(self, "store"):
            assert self.store.stats().pins == len(self.pinned)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.settle()
            self.store.control.rebuild_index()
            self._check_totals()
            self.store.close()
        shutil.rmtree(self.root)

    def _check_totals(self) -> None:
        """The index says what the files say, and no tier is fuller than it may be."""
        for name, tier in self.store.stats().tiers.items():
            folder = self.root / name
            sizes = [path.stat().st_size for path in folder.rglob("*.kvc")]
            assert (tier.chunks, tier.bytes) == (len(sizes), sum(sizes)), name
            assert tier.bytes <= tier.capacity_bytes


TestStore: Any = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
