"""Scratch: a lab's temporary folder, which does not outlive even a killed run for long."""

import fcntl
import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

_PREFIX = "kvfuse-eval-"
_UNLOCKED = "kvfuse-new-"
_LOCK = "lock"


class Scratch(AbstractContextManager[Path]):
    """A temporary folder on tmpfs where there is one, so that the memory tier in it is one.

    Its owner holds a lock in it: folders that nobody holds are what killed runs left, and are removed first.
    """

    def __init__(self, parent: Path | None = None) -> None:
        shared_memory = Path("/dev/shm")
        usable = shared_memory if os.access(shared_memory, os.W_OK) else Path(tempfile.gettempdir())
        self._parent = parent or usable

    def __enter__(self) -> Path:
        self._sweep()
        made = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=self._parent))
        self._lock = (made / _LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._folder = made.rename(self._parent / made.name.replace(_UNLOCKED, _PREFIX))
        return self._folder

    def __exit__(self, *_: object) -> None:
        self._lock.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _sweep(self) -> None:
        for lock in self._parent.glob(f"{_PREFIX}*/{_LOCK}"):
            try:
                with lock.open("w") as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(lock.parent, ignore_errors=True)
            except OSError:  # held by a running lab, or of another user
                continue
