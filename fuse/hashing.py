"""Hashes of large files, remembered as long as the files stay the same."""

import json
import os
from pathlib import Path

from blake3 import blake3

_FILE = "file-hashes.json"


class FileHashes:
    """BLAKE3 of files. With a folder to remember them in, a file is read again only when it has changed.

    A file counts as the same when path, inode, size and both its times are: the change time cannot be set back.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def hash(self, file: Path) -> str:
        """Return the hash in hex; seconds per few GB when it is not known yet."""
        identity = _identity(file)
        known = self._read()
        if identity not in known:
            known[identity] = blake3(max_threads=blake3.AUTO).update_mmap(file).hexdigest()
            self._write(known)
        return known[identity]

    def _read(self) -> dict[str, str]:
        """Return what is remembered; nothing when it is damaged: it can always be computed again."""
        if self._folder is None:
            return {}
        try:
            known = json.loads((self._folder / _FILE).read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _write(self, known: dict[str, str]) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        scratch = self._folder / f"{_FILE}.{os.getpid()}"
        scratch.write_text(json.dumps(known))
        os.replace(scratch, self._folder / _FILE)


def _identity(file: Path) -> str:
    stat = file.stat()
    return f"{file.resolve()}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"
