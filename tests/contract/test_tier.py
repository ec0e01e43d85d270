"""What every tier promises. A new tier joins by a parameter of the fixture."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore, S3Store

from store.breaker import BreakerTier
from store.keys import ChunkKey, chunk_key
from store.tally import Tally
from store.tier import Tier
from store.tiers.directory import DirectoryTier
from store.tiers.remote import ObjectTier, open_object_store
from store.wrapped import MeteredTier, ReadAheadTier, WrappedTier

KEYS = [chunk_key("f" * 64, "", [token]) for token in range(4)]
LARGE = bytes(range(256)) * 4096 * 3  # several requests long


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Store]:
    """An S3 server in this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    access: Any = {"aws_endpoint": f"http://{host}:{port}", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    endpoint = access["aws_endpoint"]
    try:
        make_bucket(endpoint)
        yield S3Store("chunks", config=access, client_options={"allow_http": True})
    finally:
        server.stop()


def make_bucket(endpoint: str) -> None:
    import httpx

    httpx.put(f"{endpoint}/chunks", trust_env=False).raise_for_status()


@pytest.fixture(params=["memory", "disk", "file", "object", "s3", "wrapped"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tier]:
    if request.param in ("memory", "disk"):
        yield DirectoryTier(request.param, tmp_path / "tier", 1 << 20)
    elif request.param == "file":
        yield ObjectTier("remote", open_object_store((tmp_path / "tier").as_uri()))
    elif request.param == "object":
        yield ObjectTier("remote", MemoryStore())
    elif request.param == "s3":
        tier = ObjectTier("remote", request.getfixturevalue("bucket"))
        yield tier
        for entry in tier.entries():
            tier.delete(entry.key)
    else:
        inner = ObjectTier("remote", MemoryStore())
        with ThreadPoolExecutor(2) as pool:
            yield ReadAheadTier(BreakerTier(MeteredTier(WrappedTier(inner), Tally()), Tally()), pool)


class TestTier:
    def test_absent(self, tier: Tier) -> None:
        assert not tier.contains(KEYS[0])
        assert tier.open(KEYS[0]) is None
        assert not tier.delete(KEYS[0])
        assert list(tier.entries()) == []
        tier.touch(KEYS[0])

    def test_what_is_written_is_read(self, tier: Tier) -> None:
        assert tier.write(KEYS[0], (b"ab", b"", memoryview(b"cd"))) == 4
        assert tier.contains(KEYS[0])
        assert content(tier, KEYS[0]) == b"abcd"
        assert [(entry.key, entry.bytes) for entry in tier.entries()] == [(KEYS[0], 4)]

    def test_an_empty_file(self, tier: Tier) -> None:
        tier.write(KEYS[0], ())
        assert content(tier, KEYS[0]) == b""

    def test_ranges_of_a_large_file(self, tier: Tier) -> None:
        tier.write(KEYS[0], (LARGE[:100_000], LARGE[100_000:]))
        source = tier.open(KEYS[0])
        assert source is not None
        assert source.size == len(LARGE)
        for start, end in [(0, 100), (65_000, 66_000), (1 << 20, 1 << 21), (1_000_000, 1_100_000), (0, len(LARGE))]:
            assert bytes(source.read(start, end)) == LARGE[start:end]

    def test_replacing_is_seen(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"old",))
        tier.write(KEYS[0], (b"newer",))
        assert content(tier, KEYS[0]) == b"newer"
        assert [(entry.key, entry.bytes) for entry in tier.entries()] == [(KEYS[0], 5)]

    def test_replacing_leaves_an_open_file_alone(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"old",))
        source = tier.open(KEYS[0])
        tier.write(KEYS[0], (b"newer",))
        assert source is not None
        assert bytes(source.read(0, source.size)) == b"old"
        assert content(tier, KEYS[0]) == b"newer"

    def test_deleting_leaves_an_open_file_alone(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"abc" * 10_000,))  # within what a remote tier fetches at once
        source = tier.open(KEYS[0])
        assert tier.delete(KEYS[0])
        assert source is not None
        assert bytes(source.read(0, source.size)) == b"abc" * 10_000
        assert not tier.contains(KEYS[0])

    def test_the_time_of_use_is_recent(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"x",))
        tier.touch(KEYS[0])
        (entry,) = tier.entries()
        assert abs(entry.last_used - time.time()) < 60

    def test_a_failing_source_leaves_nothing(self, tier: Tier) -> None:
        def parts() -> object:
            yield b"abc"
            raise RuntimeError("source failed")

        with pytest.raises(RuntimeError, match="source failed"):
            tier.write(KEYS[0], parts())  # type: ignore[arg-type]
        assert not tier.contains(KEYS[0])
        assert tier.recover() == 0
        assert list(tier.entries()) == []

    def test_recovering_keeps_the_chunks(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"abc",))
        assert tier.recover() == 0
        assert tier.contains(KEYS[0])


def content(tier: Tier, key: ChunkKey) -> bytes | None:
    source = tier.open(key)
    return None if source is None else bytes(source.read(0, source.size))
