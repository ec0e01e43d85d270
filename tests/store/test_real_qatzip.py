"""Interop with the real library's own software output, in a subprocess with few calls: it leaks a key per call."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from store.deflate import SoftwareDeflate
from store.member import STREAM_BYTES
from tests.store import real_qatzip

SIZES = [1, 1024, 20_000, STREAM_BYTES - 1, STREAM_BYTES]

# Arguments: direction, size out. The session is as the store sets it up, but with software backup.
CHILD = """
import sys
from store import qatzip_session as session
lib = session._ffi.dlopen("libqatzip.so.3")
lib.qzSetLogLevel(0)
handle = session._ffi.new("QzSession_T *")
lib.qzInit(handle, 1)
params = session._parameters()
params.deflate_params.common_params.sw_backup = 1
assert lib.qzSetupSessionDeflateExt(handle, params) >= 0
direction, size_out = sys.argv[1], int(sys.argv[2])
source = sys.stdin.buffer.read()
taken, made = session._ffi.new("unsigned *", len(source)), session._ffi.new("unsigned *", size_out)
target = session._ffi.new("unsigned char[]", size_out + 4096)
if direction == "compress":
    code = lib.qzCompress(handle, source, taken, target, made, 1)
else:
    code = lib.qzDecompress(handle, source, taken, target, made)
assert code == 0 and taken[0] == len(source), (code, taken[0])
sys.stdout.buffer.write(bytes(session._ffi.buffer(target, made[0])))
"""


@pytest.fixture(scope="session")
def environment(pytestconfig: pytest.Config) -> dict[str, str]:
    assert pytestconfig.cache is not None
    try:
        return real_qatzip.find(pytestconfig.cache.mkdir("qatzip"))
    except real_qatzip.NotFound as reason:
        pytest.skip(f"LIBQATZIP NOT TESTED: {reason}")


def call(environment: dict[str, str], direction: str, data: bytes, size_out: int) -> bytes:
    command = [sys.executable, "-c", CHILD, direction, str(size_out)]
    done = subprocess.run(command, input=data, capture_output=True, env=environment, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("size", SIZES)
def test_both_read_each_others_members(environment: dict[str, str], size: int, tmp_path: Path) -> None:
    data = np.random.default_rng(0).geometric(0.4, size).astype(np.uint8).tobytes()
    deflate = SoftwareDeflate()
    theirs = call(environment, "compress", data, 2 * size + 1024)
    out = bytearray(size)
    deflate.decompress_into(memoryview(theirs), memoryview(out))
    assert out == data
    ours = deflate.compress(memoryview(data))
    assert call(environment, "decompress", ours, size) == data
