"""What every tier promises. A new tier joins by a parameter of the fixture."""

import os
from pathlib import Path

import pytest

from store.keys import ChunkKey, chunk_key
from store.tier import Tier
from store.tiers.directory import DirectoryTier

KEYS = [chunk_key("f" * 64, "", [token]) for token in range(4)]


@pytest.fixture(params=["memory", "disk"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Tier:
    return DirectoryTier(request.param, tmp_path / "tier", 1 << 20)


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

    def test_replacing_leaves_an_open_file_alone(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"old",))
        source = tier.open(KEYS[0])
        tier.write(KEYS[0], (b"newer",))
        assert source is not None
        assert bytes(source.read(0, source.size)) == b"old"
        assert content(tier, KEYS[0]) == b"newer"

    def test_deleting_leaves_an_open_file_alone(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"abc" * 10_000,))
        source = tier.open(KEYS[0])
        assert tier.delete(KEYS[0])
        assert source is not None
        assert bytes(source.read(0, source.size)) == b"abc" * 10_000
        assert not tier.contains(KEYS[0])

    def test_touching_makes_it_the_most_recently_used(self, tier: Tier) -> None:
        for key in KEYS[:3]:
            tier.write(key, (b"x",))
        os.utime(path_of(tier, KEYS[1]), (1, 1))
        assert coldest(tier) == KEYS[1]
        tier.touch(KEYS[1])
        assert coldest(tier) != KEYS[1]

    def test_a_failing_source_leaves_nothing(self, tier: Tier) -> None:
        def parts() -> object:
            yield b"abc"
            raise RuntimeError("source failed")

        with pytest.raises(RuntimeError, match="source failed"):
            tier.write(KEYS[0], parts())  # type: ignore[arg-type]
        assert not tier.contains(KEYS[0])
        assert tier.recover() == 0
        assert files_under(tier) == []

    def test_recovering_keeps_the_chunks(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"abc",))
        assert tier.recover() == 0
        assert tier.contains(KEYS[0])

    def test_foreign_files_are_not_chunks(self, tier: Tier) -> None:
        tier.write(KEYS[0], (b"abc",))
        (path_of(tier, KEYS[0]).parent / "README.kvc").write_bytes(b"x")
        (path_of(tier, KEYS[0]).parent / ("a" * 64)).write_bytes(b"x")
        assert [entry.key for entry in tier.entries()] == [KEYS[0]]


def content(tier: Tier, key: ChunkKey) -> bytes | None:
    source = tier.open(key)
    return None if source is None else bytes(source.read(0, source.size))


def path_of(tier: Tier, key: ChunkKey) -> Path:
    assert isinstance(tier, DirectoryTier)
    return tier.path(key)


def files_under(tier: Tier) -> list[Path]:
    root = path_of(tier, KEYS[0]).parent.parent
    return [path for path in root.rglob("*") if path.is_file()]


def coldest(tier: Tier) -> ChunkKey:
    return min(tier.entries(), key=lambda entry: entry.last_used).key
