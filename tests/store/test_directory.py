import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.errors import TierFull
from store.keys import chunk_key
from store.tiers.directory import DirectoryTier
from tests.fresh import run_fresh

KEY = chunk_key("f" * 64, "", [1])

WRITER = """
import sys, time
from pathlib import Path
from store.keys import ChunkKey
from store.tiers.directory import DirectoryTier

def parts():
    yield b"half"
    print("writing", flush=True)
    time.sleep(60)
    yield b"rest"

DirectoryTier("memory", Path(sys.argv[1]), 1 << 20).write(ChunkKey(sys.argv[2]), parts())
"""


def test_a_killed_writer_leaves_nothing_after_recovery(tmp_path: Path) -> None:
    tier = DirectoryTier("memory", tmp_path, 1 << 20)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), KEY], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    assert tier.recover() == 0, "the file of a living writer was taken"
    writer.kill()
    writer.wait()
    writer.stdout.close()
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    assert tier.recover() == 1
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not tier.contains(KEY)


def test_no_room_on_the_medium(tmp_path: Path) -> None:
    """A file size limit stands for a full medium: the same refusal, no half file."""
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom store.errors import TierFull\n"
        "from store.keys import ChunkKey\nfrom store.tiers.directory import DirectoryTier\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    DirectoryTier('disk', Path(sys.argv[1]), 1 << 20).write(ChunkKey(sys.argv[2]), (b'x' * 2000,))\n"
        "except TierFull as error:\n    print(error.strerror)\n"
    )
    result = run_fresh(code, str(tmp_path), KEY)
    assert result.stdout.strip() == f"disk tier: no room for chunk {KEY}"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    tier = DirectoryTier("memory", tmp_path, 1 << 20)
    (tmp_path / KEY[:2]).write_bytes(b"")
    assert list(tier.entries()) == []
    with pytest.raises(OSError, match=r"exist|directory") as error:
        tier.write(KEY, (b"x",))
    assert not isinstance(error.value, TierFull)


def test_foreign_files_are_not_chunks(tmp_path: Path) -> None:
    tier = DirectoryTier("memory", tmp_path, 1 << 20)
    tier.write(KEY, (b"abc",))
    (tier.path(KEY).parent / "README.kvc").write_bytes(b"x")
    (tier.path(KEY).parent / ("a" * 64)).write_bytes(b"x")
    assert [entry.key for entry in tier.entries()] == [KEY]


def test_touching_is_using(tmp_path: Path) -> None:
    tier = DirectoryTier("memory", tmp_path, 1 << 20)
    tier.write(KEY, (b"abc",))
    os.utime(tier.path(KEY), (1, 1))
    assert [entry.last_used for entry in tier.entries()] == [1]
    tier.touch(KEY)
    assert [entry.last_used > 1 for entry in tier.entries()] == [True]


def test_a_failing_source_leaves_no_temporary_file(tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"abc"
        raise RuntimeError("source failed")

    with pytest.raises(RuntimeError, match="source failed"):
        DirectoryTier("memory", tmp_path, 1 << 20).write(KEY, parts())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
