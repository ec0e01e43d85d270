"""Deflate on Intel QuickAssist through libqatzip, hardware only.

QATzip's own software fallback is never used: in 1.3.1 it probes for hardware again on every call and leaks a
pthread key each time. Everything the hardware does not do goes to `SoftwareDeflate`, which writes the same members.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from store.codecs.streams import StreamCoder
from store.deflate import Backend, Deflate, SoftwareDeflate
from store.errors import CorruptBlob, QatUnavailable
from store.member import check_member
from store.qatzip_abi import SONAME, Outcome
from store.qatzip_session import QatLibrary, QatSession, load_library

SMALL_BYTES = 16 * 1024
"""Below this a call costs more than it saves, and below 1 KiB QATzip itself would go to software."""

MAX_SESSIONS = 8
_VFIO = Path("/dev/vfio")


def open_deflate(backend: Backend, soname: str = SONAME, devices: Path = _VFIO) -> Deflate:
    """The byte coder for `backend`: hardware where it answers, else software with the reason.

    Raises QatUnavailable for `Backend.HARDWARE` without answering hardware.
    """
    if backend is Backend.SOFTWARE:
        return SoftwareDeflate()
    try:
        return QatDeflate(_probe(os.getpid(), soname, devices), SoftwareDeflate())
    except QatUnavailable as error:
        if backend is Backend.HARDWARE:
            raise
        return SoftwareDeflate(str(error))


class QatDeflate(StreamCoder):
    """Hardware deflate with one session per thread, at most `sessions` of them working at once.

    Small input, a busy device and a forked child go to `software`, each counted.
    """

    backend = "hardware"
    reason = "QuickAssist answers"

    def __init__(self, library: QatLibrary, software: SoftwareDeflate, sessions: int = MAX_SESSIONS) -> None:
        self._library = library
        self._software = software
        self.counters = software.counters
        self._pid = os.getpid()
        self._slots = threading.BoundedSemaphore(sessions)
        self._threads = threading.local()

    def compress(self, data: memoryview) -> bytes:
        """See `Deflate.compress`. Every hardware result is checked to be one QATzip member of `data`'s size."""
        if len(data) < SMALL_BYTES or not self._usable():
            return self._software.compress(data)
        produced: list[bytes] = []
        result = self._on_hardware(lambda session: session.compress(data, produced))
        if result is Outcome.DONE and _is_member(produced[-1], len(data)):
            return produced[-1]
        return self._software.compress(data)

    def decompress_into(self, member: memoryview, out: memoryview) -> None:
        """See `Deflate.decompress_into`. What the hardware cannot do, software decides; damage is damage."""
        check_member(member, len(out))
        if len(out) < SMALL_BYTES or not self._usable():
            self._software.decompress_into(member, out)
            return
        result = self._on_hardware(lambda session: session.decompress_into(member, out))
        if result is Outcome.DAMAGED:
            raise CorruptBlob(f"gzip member: QuickAssist found {len(member)} bytes damaged")
        if result is not Outcome.DONE:
            self._software.decompress_into(member, out)

    def _usable(self) -> bool:
        if os.getpid() == self._pid:
            return True
        self.counters.add("fork_fallbacks")
        return False

    def _on_hardware(self, call: Callable[[QatSession], Outcome]) -> Outcome:
        """Run `call` on this thread's session; a busy device is asked once more."""
        if not self._slots.acquire(blocking=False):
            self.counters.add("busy_fallbacks")
            return Outcome.BUSY
        try:
            session = self._session()
            result = call(session)
            if result is Outcome.BUSY:
                result = call(session)
        except QatUnavailable:
            result = Outcome.UNAVAILABLE
        finally:
            self._slots.release()
        self.counters.add("hw_calls" if result is Outcome.DONE else f"{result.value}_fallbacks")
        return result

    def _session(self) -> QatSession:
        if not hasattr(self._threads, "session"):
            self._threads.session = QatSession(self._library)
        session: QatSession = self._threads.session
        return session


_probed: dict[tuple[int, str, Path], QatLibrary | QatUnavailable] = {}
_probe_lock = threading.Lock()


def _probe(pid: int, soname: str, devices: Path) -> QatLibrary:
    """The initialised library, tried once per process for good. Raises QatUnavailable."""
    with _probe_lock:
        found = _probed.get((pid, soname, devices))
        if found is None:
            try:
                found = _initialise(soname, devices)
            except QatUnavailable as error:
                found = error
            _probed[pid, soname, devices] = found
    if isinstance(found, QatUnavailable):
        raise QatUnavailable(str(found))
    return found


def _initialise(soname: str, devices: Path) -> QatLibrary:
    """Load and start the library, but only with a device group to open: its probe would write to stderr otherwise."""
    try:
        groups = [path for path in devices.iterdir() if path.name.isdigit() and os.access(path, os.R_OK | os.W_OK)]
    except OSError:
        groups = []
    if not groups:
        raise QatUnavailable(f"no accessible device group in {devices}")
    return load_library(soname)


def _is_member(member: Any, raw_size: int) -> bool:
    try:
        check_member(member, raw_size)
    except CorruptBlob:
        return False
    return True
