"""libqatzip loaded by cffi, and one session on it."""

from dataclasses import dataclass
from typing import Any

from cffi import FFI

from store import qatzip_abi as abi
from store.errors import QatUnavailable
from store.member import STREAM_BYTES

_ffi = FFI()
_ffi.cdef(abi.DECLARATIONS)

_MEMBER_SLACK = 4096
"""Room beyond `qzMaxCompressedLength`: one of QATzip's formats is known to write past the end."""


@dataclass(frozen=True, slots=True)
class QatLibrary:
    """A loaded library whose hardware answered."""

    lib: Any


def load_library(soname: str) -> QatLibrary:
    """Load, silence and initialise without software backup. Raises QatUnavailable saying what is missing."""
    try:
        lib = _ffi.dlopen(soname)
    except OSError as error:
        raise QatUnavailable(f"{soname} cannot be loaded: {error}") from error
    missing = [name for name in abi.REQUIRED_SYMBOLS if not _has(lib, name)]
    if missing:
        raise QatUnavailable(f"{soname} is older than 1.3: it lacks {', '.join(missing)}")
    lib.qzSetLogLevel(abi.LOG_NONE)
    _init(lib, _ffi.new("QzSession_T *"))
    return QatLibrary(lib)


class QatSession:
    """One deflate session; one thread at a time. Raises QatUnavailable when it cannot be set up.

    After anything but a clean success the session is torn down and set up again, because QATzip leaves it unusable.
    """

    def __init__(self, library: QatLibrary) -> None:
        self._lib = library.lib
        self._open()

    def compress(self, data: memoryview, produced: list[bytes]) -> abi.Outcome:
        """Append the member of `data` to `produced` on `Outcome.DONE`."""
        source = _ffi.from_buffer("unsigned char[]", data)
        consumed = _ffi.new("unsigned int *", len(data))
        length = _ffi.new("unsigned int *", self._room)
        before = self._session.total_in
        code = self._lib.qzCompress(self._session, source, consumed, self._scratch, length, 1)
        complete = consumed[0] == len(data) and 0 < length[0] <= self._room
        result = self._judge(code, complete and self._session.total_in > before)
        if result is abi.Outcome.DONE:
            produced.append(bytes(_ffi.buffer(self._scratch, length[0])))
        return result

    def decompress_into(self, member: memoryview, out: memoryview) -> abi.Outcome:
        """Fill `out` from one member; QATzip reports truncation only through consumed, produced and end of stream."""
        source = _ffi.from_buffer("unsigned char[]", member)
        target = _ffi.from_buffer("unsigned char[]", out, require_writable=True)
        consumed = _ffi.new("unsigned int *", len(member))
        length = _ffi.new("unsigned int *", len(out))
        ended = _ffi.new("unsigned char *")
        before = self._session.total_in
        code = self._lib.qzDecompress(self._session, source, consumed, target, length)
        complete = consumed[0] == len(member) and length[0] == len(out)
        if code == abi.OK and complete:
            complete = self._lib.qzGetDeflateEndOfStream(self._session, ended) == abi.OK and ended[0] == 1
        if code == abi.OK and not complete:
            self._reopen()
            return abi.Outcome.DAMAGED
        return self._judge(code, self._session.total_in > before)

    def __del__(self) -> None:
        if hasattr(self, "_session"):
            self._lib.qzTeardownSession(self._session)

    def _judge(self, code: int, by_hardware: bool) -> abi.Outcome:
        result = abi.outcome(code)
        if result is abi.Outcome.DONE and by_hardware:
            return result
        if result is not abi.Outcome.BUSY:
            self._reopen()
        return abi.Outcome.FAILED if result is abi.Outcome.DONE else result

    def _open(self) -> None:
        session = _ffi.new("QzSession_T *")
        _init(self._lib, session)
        code = self._lib.qzSetupSessionDeflateExt(session, _parameters())
        if code != abi.OK:
            raise QatUnavailable(f"QATzip session set-up returned {code}, expected 0")
        self._session = session
        self._room = int(self._lib.qzMaxCompressedLength(STREAM_BYTES, session)) or 2 * STREAM_BYTES
        self._scratch = _ffi.new("unsigned char[]", self._room + _MEMBER_SLACK)

    def _reopen(self) -> None:
        self._lib.qzTeardownSession(self._session)
        self._open()


def _parameters() -> Any:
    """Level 1, dynamic Huffman, gzip members of 64 KiB, no software backup; the process's defaults stay untouched."""
    params = _ffi.new("QzSessionParamsDeflateExt_T *")
    common = params.deflate_params.common_params
    common.direction = abi.DIRECTION_BOTH
    common.comp_lvl = 1
    common.comp_algorithm = abi.COMP_DEFLATE
    common.max_forks = 3
    common.sw_backup = 0
    common.hw_buff_sz = common.strm_buff_sz = STREAM_BYTES
    common.input_sz_thrshold = 1024
    common.req_cnt_thrshold = 32
    common.wait_cnt_thrshold = 8
    params.deflate_params.data_fmt = abi.FORMAT_GZIP_EXT
    return params


def _init(lib: Any, session: Any) -> None:
    code = lib.qzInit(session, 0)
    if code not in (abi.OK, abi.DUPLICATE) or session.hw_session_stat != abi.OK:
        raise QatUnavailable(f"QATzip initialisation returned {code}, hardware state {session.hw_session_stat}")


def _has(lib: Any, name: str) -> bool:
    try:
        getattr(lib, name)
    except AttributeError:
        return False
    return True
