"""The hardware path against a fake library: what it does with every code and length, and when it must not be used."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI

from store.deflate import Backend, SoftwareDeflate
from store.errors import CorruptBlob, QatUnavailable
from store.member import STREAM_BYTES
from store.qatzip import QatDeflate, open_deflate
from store.qatzip_abi import Outcome, outcome
from tests.fresh import run_fresh

DATA = os.urandom(STREAM_BYTES)
SWITCHES = ("init", "setup", "compress", "decompress", "hw", "busy", "software", "short", "end", "garbage", "fill")


class Fake:
    """The fake library's switches and counters as attributes."""

    def __init__(self, path: Path) -> None:
        ffi = FFI()
        counters = ("calls", "teardowns", "setups", "inits", "backup")
        ints = ", ".join(f"fake_{name}" for name in (*SWITCHES, *counters) if name != "hw")
        ffi.cdef(f"extern int {ints}; extern long fake_hw;")
        object.__setattr__(self, "_lib", ffi.dlopen(str(path)))

    def __getattr__(self, name: str) -> int:
        return int(getattr(self._lib, f"fake_{name}"))

    def __setattr__(self, name: str, value: int) -> None:
        setattr(self._lib, f"fake_{name}", value)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qat") / "libfake.so"
    source = Path(__file__).with_name("fake_qatzip.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture
def soname(library: Path, tmp_path: Path) -> str:
    """A copy of its own for each test, because the probe's result is kept for the process."""
    return str(shutil.copy(library, tmp_path / "libfake.so"))


@pytest.fixture
def fake(soname: str) -> Fake:
    return Fake(Path(soname))


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    (tmp_path / "vfio").mkdir()
    (tmp_path / "vfio" / "12").touch()
    return tmp_path / "vfio"


@pytest.fixture
def deflate(fake: Fake, soname: str, devices: Path) -> QatDeflate:
    opened = open_deflate(Backend.HARDWARE, soname, devices)
    assert isinstance(opened, QatDeflate)
    return opened


def round_trip(deflate: Any, data: bytes = DATA) -> None:
    member = deflate.compress(memoryview(data))
    out = bytearray(len(data))
    deflate.decompress_into(memoryview(member), memoryview(out))
    assert out == data


def test_hardware_does_the_work(deflate: QatDeflate, fake: Fake) -> None:
    round_trip(deflate)
    assert deflate.backend == "hardware"
    assert deflate.counters.snapshot() == {"hw_calls": 2}
    assert (fake.calls, fake.backup) == (2, 0)


def test_software_reads_what_hardware_wrote(deflate: QatDeflate) -> None:
    out = bytearray(len(DATA))
    SoftwareDeflate().decompress_into(memoryview(deflate.compress(memoryview(DATA))), memoryview(out))
    assert out == DATA


def test_small_input_stays_in_software(deflate: QatDeflate, fake: Fake) -> None:
    round_trip(deflate, DATA[: 16 * 1024 - 1])
    assert fake.calls == 0
    assert deflate.counters.snapshot() == {"sw_calls": 2}


def test_a_busy_device_is_asked_once_more(deflate: QatDeflate, fake: Fake) -> None:
    fake.busy = 1
    round_trip(deflate)
    assert deflate.counters.snapshot() == {"hw_calls": 2}


def test_a_device_that_stays_busy_is_replaced_by_software(deflate: QatDeflate, fake: Fake) -> None:
    fake.busy = 2
    round_trip(deflate, b"\0" * STREAM_BYTES)
    assert deflate.counters["busy_fallbacks"] == 1
    assert deflate.counters["sw_calls"] == 2, "the fake reads only what it wrote"


@pytest.mark.parametrize("code", [-1, -2, -3, -4, -5, -100, -101, -102, -103, -104, -105, -116, -117, -200, 1, 2, 16])
def test_every_failing_code_of_compress_ends_in_software(deflate: QatDeflate, fake: Fake, code: int) -> None:
    fake.compress = code
    member = deflate.compress(memoryview(DATA))
    out = bytearray(len(DATA))
    SoftwareDeflate().decompress_into(memoryview(member), memoryview(out))
    assert out == DATA
    assert deflate.counters[f"{outcome(code).value}_fallbacks"] == 1
    assert fake.teardowns == (outcome(code) is not Outcome.BUSY)


@pytest.mark.parametrize("code", [-1, -2, -3, -5, -100, -101, -102, -103, -104, -105, -116, -117, -200, 1, 2, 16])
def test_every_undecided_code_of_decompress_is_decided_by_software(deflate: QatDeflate, fake: Fake, code: int) -> None:
    fake.decompress = code
    round_trip(deflate)
    assert deflate.counters["sw_calls"] == 1


def test_damage_the_hardware_found_is_damage(deflate: QatDeflate, fake: Fake) -> None:
    fake.decompress = -4
    with pytest.raises(CorruptBlob, match="damaged"):
        round_trip(deflate)
    assert fake.teardowns == 1
    fake.decompress = 0
    round_trip(deflate)


@pytest.mark.parametrize(("switch", "value"), [("short", 1), ("end", 0)])
def test_success_that_is_not_complete_is_damage(deflate: QatDeflate, fake: Fake, switch: str, value: int) -> None:
    member = deflate.compress(memoryview(DATA))
    setattr(fake, switch, value)
    with pytest.raises(CorruptBlob):
        deflate.decompress_into(memoryview(member), memoryview(bytearray(len(DATA))))
    assert fake.teardowns == 1


@pytest.mark.parametrize(("switch", "value"), [("short", 1), ("garbage", 1), ("software", 1)])
def test_a_doubtful_result_of_compress_is_not_used(deflate: QatDeflate, fake: Fake, switch: str, value: int) -> None:
    setattr(fake, switch, value)
    member = deflate.compress(memoryview(DATA))
    assert deflate.counters["sw_calls"] == 1
    SoftwareDeflate().decompress_into(memoryview(member), memoryview(bytearray(len(DATA))))


def test_a_result_of_qatzips_own_software_is_not_trusted(deflate: QatDeflate, fake: Fake) -> None:
    fake.software = 1
    round_trip(deflate)
    assert deflate.counters.snapshot() == {"failed_fallbacks": 2, "sw_calls": 2}


def test_more_threads_than_sessions(deflate: QatDeflate, soname: str) -> None:
    narrow = QatDeflate(deflate._library, SoftwareDeflate(), sessions=1)
    threads = [threading.Thread(target=round_trip, args=(narrow,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = narrow.counters.snapshot()
    assert counts.get("hw_calls", 0) + counts.get("sw_calls", 0) == 16


def test_a_forked_child_uses_software(deflate: QatDeflate, monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    round_trip(deflate)
    assert fake.calls == 0
    assert deflate.counters["fork_fallbacks"] == 2


def test_no_device_leaves_the_library_unloaded(tmp_path: Path) -> None:
    (tmp_path / "vfio").mkdir()
    (tmp_path / "vfio" / "vfio").touch()
    opened = open_deflate(Backend.AUTO, "/nowhere/libqatzip.so.3", tmp_path / "vfio")
    assert (opened.backend, opened.reason) == ("software", f"no accessible device group in {tmp_path / 'vfio'}")


def test_a_device_without_the_library(devices: Path) -> None:
    assert "cannot be loaded" in open_deflate(Backend.AUTO, "/nowhere/libqatzip.so.3", devices).reason
    with pytest.raises(QatUnavailable, match="cannot be loaded"):
        open_deflate(Backend.HARDWARE, "/nowhere/libqatzip.so.3", devices)


@pytest.mark.parametrize(("switch", "value", "said"), [("init", -101, "returned -101"), ("hw", 11, "state 11")])
def test_hardware_that_does_not_answer(
    fake: Fake, soname: str, devices: Path, switch: str, value: int, said: str
) -> None:
    setattr(fake, switch, value)
    for _ in range(2):
        opened = open_deflate(Backend.AUTO, soname, devices)
        assert opened.backend == "software"
        assert said in opened.reason
    with pytest.raises(QatUnavailable, match=said):
        open_deflate(Backend.HARDWARE, soname, devices)
    assert fake.inits == 1, "the probe was repeated"
    assert fake.calls == 0


def test_a_session_that_cannot_be_set_up(deflate: QatDeflate, fake: Fake) -> None:
    fake.setup = -104
    round_trip(deflate)
    assert deflate.counters.snapshot() == {"unavailable_fallbacks": 2, "sw_calls": 2}


def test_an_old_library_is_refused(tmp_path: Path, devices: Path) -> None:
    (tmp_path / "old.c").write_text("int qzInit(void *s, unsigned char b) { return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "old.so"), str(tmp_path / "old.c")], check=True)
    assert "older than 1.3" in open_deflate(Backend.AUTO, str(tmp_path / "old.so"), devices).reason


def test_software_mode_never_looks_for_devices(fake: Fake, soname: str, devices: Path) -> None:
    assert open_deflate(Backend.SOFTWARE, soname, devices).backend == "software"
    assert fake.inits == 0


def test_many_calls_without_hardware_load_nothing_and_say_nothing() -> None:
    code = (
        "from store.deflate import Backend\nfrom store.qatzip import open_deflate\n"
        "data = memoryview(bytes(20000))\n"
        "for _ in range(2000):\n    open_deflate(Backend.AUTO).compress(data)\n"
        "print('qatzip' in open('/proc/self/maps').read())\n"
    )
    done = run_fresh(code)
    assert (done.stdout, done.stderr) == ("False\n", "")
