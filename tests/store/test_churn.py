"""Killing processes at random moments, and many processes on one store; `make bench-store` does both for longer."""

from pathlib import Path

from app.eval.bench.churn import churned


def test_two_hundred_kills(tmp_path: Path) -> None:
    outcome = churned("kill", tmp_path, 7, 200)
    assert outcome["kills"] == 200
    assert outcome["puts"] > 100
    assert outcome["recovered"] > 0, "no kill came while a file was being written"


def test_eight_processes_on_one_store(tmp_path: Path) -> None:
    outcome = churned("hammer", tmp_path, 1, 8, 5)
    assert outcome["pins"] == 0
    assert min(outcome["hits"], outcome["puts"], outcome["deletes"], outcome["moves"], outcome["pinned"]) > 0
