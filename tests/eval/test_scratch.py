"""A lab's temporary folder: gone at its end, and gone with the next lab where its owner was killed."""

import subprocess
import sys
from pathlib import Path

from app.eval.scratch import Scratch

KILLED = """
import os, pathlib, signal, sys
from app.eval.scratch import Scratch
(Scratch(pathlib.Path(sys.argv[1])).__enter__() / "chunk").write_text("K/V")
os.kill(os.getpid(), signal.SIGKILL)
"""


TERMINATED = """
import asyncio, pathlib, sys
from app.eval.running import run_to_end
from app.eval.scratch import Scratch

async def work():
    with Scratch(pathlib.Path(sys.argv[1])):
        print("started", flush=True)
        await asyncio.sleep(60)

run_to_end(work())
"""


def test_it_is_gone_at_the_end(tmp_path: Path) -> None:
    with Scratch(tmp_path) as folder:
        (folder / "memory").mkdir()
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_lab_left_is_removed_and_a_running_one_s_kept(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    with Scratch(tmp_path) as first, Scratch(tmp_path) as second:
        assert not left.exists()
        assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name}


def test_sigterm_ends_a_run_in_order(tmp_path: Path) -> None:
    running = subprocess.Popen([sys.executable, "-c", TERMINATED, str(tmp_path)], stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"started\n"
    assert len(list(tmp_path.iterdir())) == 1
    running.terminate()
    assert running.wait(60) != 0
    running.stdout.close()
    assert list(tmp_path.iterdir()) == []
