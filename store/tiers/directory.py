"""A tier in a directory: on tmpfs it is the memory tier, on a local disk the disk tier.

`<root>/<first two digits>/<key>.kvc` are the chunks, `<root>/tmp/` holds files being written. A file's modification
time is its last use. A writer holds a lock on its temporary file, so any process can tell a crashed writer's leftovers,
whatever pid namespace it ran in.
"""

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from store.errors import TierFull
from store.keys import ChunkKey, is_hash
from store.source import BytesSource, Source
from store.tier import TierEntry

SUFFIX = ".kvc"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_serial = count()


class DirectoryTier:
    """See `store.tier.Tier`."""

    def __init__(self, name: str, root: Path, capacity_bytes: int) -> None:
        self.name = name
        self.capacity_bytes = capacity_bytes
        self._root = root
        self._temporary = root / "tmp"
        self._temporary.mkdir(parents=True, exist_ok=True)

    def path(self, key: ChunkKey) -> Path:
        """Where the chunk `key` is or would be."""
        return self._root / key[:2] / f"{key}{SUFFIX}"

    def contains(self, key: ChunkKey) -> bool:
        """See `Tier.contains`."""
        return os.path.exists(self.path(key))

    def open(self, key: ChunkKey) -> Source | None:
        """See `Tier.open`: a read-only map, which outlives removal and replacement of the file."""
        try:
            descriptor = os.open(self.path(key), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if os.fstat(descriptor).st_size == 0:
                return BytesSource(memoryview(b""))
            return BytesSource(memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)))
        finally:
            os.close(descriptor)

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        """See `Tier.write`."""
        target = self.path(key)
        try:
            target.parent.mkdir(exist_ok=True)
            return self._write(target, parts)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise TierFull(error.errno, f"{self.name} tier: no room for chunk {key}") from error
            raise

    def delete(self, key: ChunkKey) -> bool:
        """See `Tier.delete`."""
        try:
            os.unlink(self.path(key))
        except FileNotFoundError:
            return False
        return True

    def touch(self, key: ChunkKey) -> None:
        """See `Tier.touch`."""
        with contextlib.suppress(OSError):
            os.utime(self.path(key))

    def entries(self) -> Iterator[TierEntry]:
        """See `Tier.entries`; files that go away meanwhile are left out."""
        for folder in _scan(self._root):
            if len(folder.name) == 2:
                for file in _scan(Path(folder.path)):
                    if (entry := _entry(file)) is not None:
                        yield entry

    def recover(self) -> int:
        """See `Tier.recover`."""
        return sum(_remove_if_orphan(Path(entry.path)) for entry in _scan(self._temporary))

    def _write(self, target: Path, parts: Iterable[bytes | memoryview]) -> int:
        temporary, descriptor = self._create()
        try:
            size = 0
            for part in parts:
                size += _write_all(descriptor, part)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        return size

    def _create(self) -> tuple[Path, int]:
        """A new locked temporary file; made again when `recover` took it between creation and lock."""
        while True:
            path = self._temporary / f"{os.getpid()}.{next(_serial)}.{os.urandom(4).hex()}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
            os.close(descriptor)


def _write_all(descriptor: int, part: bytes | memoryview) -> int:
    rest = memoryview(part)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    return len(part)


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _entry(file: os.DirEntry[str]) -> TierEntry | None:
    key = file.name.removesuffix(SUFFIX)
    if file.name == key or not is_hash(key):
        return None
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return TierEntry(ChunkKey(key), status.st_size, status.st_mtime)


def _remove_if_orphan(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
