"""A broken chunk file gives the right answer and one counted miss."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.lab import ANSWER, FACTS, Lab, largest_difference, replace_file

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) * 3 // 4] ^= 0x10
    replace_file(file, data)


def flip_a_header_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[40] ^= 0x01
    replace_file(file, data)


def truncate(file: Path) -> None:
    replace_file(file, file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    replace_file(file, b"")


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_a_bit, "corrupt"),
        (flip_a_header_bit, "bad_header"),
        (truncate, "truncated"),
        (empty, "truncated"),
        (remove, "absent"),
    ],
)
async def test_a_damaged_chunk_is_recomputed_and_counted(lab: Lab, damage: Callable[[Path], None], reason: str) -> None:
    passages = await lab.save(FACTS)  # restores what an earlier case has lost
    prompt = lab.prompt(passages)
    plan = lab.plan(passages, "boundary", tokens=16)
    before = await lab.misses()
    whole = await lab.ask(prompt, plan)
    for file in lab.files(lab.key(passages[2])):
        damage(file)
    damaged = await lab.ask(prompt, plan)
    misses = await lab.misses()
    assert ANSWER in whole.text
    assert ANSWER in damaged.text
    assert damaged.report["missed_chunks"] == 1
    assert damaged.report["computed"] == whole.report["computed"] + len(passages[2])
    changed = {name: count - before.get(name, 0) for name, count in misses.items() if count != before.get(name, 0)}
    assert sum(changed.values()) == 1, changed
    assert reason in changed or reason == "truncated", changed


async def test_every_chunk_lost_equals_an_ordinary_prefill(lab: Lab) -> None:
    passages = await lab.save(FACTS)
    prompt = lab.prompt(passages)
    for passage in passages:
        for file in lab.files(lab.key(passage)):
            file.unlink()
    answer = await lab.ask(prompt, lab.plan(passages, "none"))
    assert answer.report["reused"] == 0
    assert answer.report["missed_chunks"] == len(passages)
    assert largest_difference((await lab.ask(prompt)).first, answer.first) <= 0.02
    await lab.save(FACTS)
