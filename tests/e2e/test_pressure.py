"""A cache too small for its requests, and requests that go away: answers stay the same, nothing is left behind."""

from pathlib import Path

import pytest

from app.selfcheck import total_variation
from tests.e2e.inline import run_once
from tests.e2e.pressure import ANSWER_TOKENS, BLOCKS, DEADLINES_S, Answer, Pressure, press

pytestmark = pytest.mark.e2e

ROUNDING = 0.02
"""float32, in batches of other shapes."""


@pytest.fixture(scope="module", params=[False, True], ids=["load-first", "load-beside"])
def pressure(request: pytest.FixtureRequest, model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Pressure:
    return run_once(press, tmp_path_factory.mktemp("pressure"), model_dir, request.param)


def agreement(first: Answer, second: Answer) -> tuple[int, float]:
    """Return how many tokens two answers share from the start, and their largest distance over those."""
    distances = []
    for one, other in zip(first, second, strict=True):
        distances.append(total_variation(one, other))
        if max(one, key=one.__getitem__) != max(other, key=other.__getitem__):
            break
    return len(distances), max(distances)


def test_preempted_requests_are_loaded_again_and_go_on_alike(pressure: Pressure) -> None:
    """Answers part in the end, over a near tie and the rounding of another batch; not where they were resumed."""
    assert pressure.preempted
    assert all(report["reused"] > 0 and report["missed_chunks"] == 0 for report in pressure.reports)
    for alone, together in zip(pressure.alone, pressure.together, strict=True):
        tokens, distance = agreement(alone, together)
        assert len(together) == ANSWER_TOKENS
        assert tokens > max(pressure.preempted) + 5
        assert distance < ROUNDING


def test_the_prompts_are_told_apart(pressure: Pressure) -> None:
    """So that agreement means something."""
    tokens, distance = agreement(*pressure.alone[:2])
    assert distance > 5 * ROUNDING
    assert tokens < 5


def test_no_block_is_leaked_by_preemption_by_aborts_at_any_step_or_by_deadlines(pressure: Pressure) -> None:
    assert pressure.late == len(DEADLINES_S)
    assert pressure.free == [BLOCKS - 1] * 4


def test_no_thread_file_mapping_or_pin_is_left(pressure: Pressure) -> None:
    before, after = pressure.held
    assert after == before
    assert after["pins"] == 0


def test_the_worker_forgets_requests_that_went_away(pressure: Pressure) -> None:
    assert pressure.left == []


def test_the_engine_answers_as_before_after_aborts(pressure: Pressure) -> None:
    tokens, distance = agreement(pressure.alone[0], pressure.after)
    assert tokens == ANSWER_TOKENS
    assert distance < ROUNDING
