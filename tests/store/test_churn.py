"""Killing processes at random moments, and many processes on one store; `make bench` does both for longer."""

import json
import subprocess
import sys
from pathlib import Path


def churned(mode: str, root: Path, *numbers: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.store.churn", mode, str(root), *map(str, numbers)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-3000:]
    outcome: dict[str, int] = json.loads(result.stdout)
    print(outcome)
    return outcome


def test_two_hundred_kills(tmp_path: Path) -> None:
    outcome = churned("kill", tmp_path, 7, 200)
    assert outcome["kills"] == 200
    assert outcome["puts"] > 100
    assert outcome["recovered"] > 0, "no kill came while a file was being written"


def test_eight_processes_on_one_store(tmp_path: Path) -> None:
    outcome = churned("hammer", tmp_path, 1, 8, 5)
    assert outcome["pins"] == 0
    assert min(outcome["hits"], outcome["puts"], outcome["deletes"], outcome["moves"], outcome["pinned"]) > 0
