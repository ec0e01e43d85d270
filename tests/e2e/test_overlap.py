"""A recompute that begins while its chunks are still being loaded does what one behind the load does."""

from pathlib import Path

import pytest

from tests.e2e.inline import run_once
from tests.e2e.overlap import POLICIES, Overlap, overlap

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def found(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Overlap:
    return run_once(overlap, tmp_path_factory.mktemp("overlap"), model_dir)


@pytest.mark.parametrize("policy", POLICIES)
def test_each_layer_is_awaited_and_the_answer_is_the_same(found: Overlap, policy: str) -> None:
    after, during = found.after[policy], found.during[policy]
    assert found.awaited[policy] == 1
    assert during.first == after.first
    assert during.text == after.text
    counts = ("reused", "recomputed", "computed", "missed_chunks")
    assert [during.report[name] for name in counts] == [after.report[name] for name in counts]


def test_the_policies_are_told_apart(found: Overlap) -> None:
    """So that sameness means something."""
    firsts = [tuple(sorted(answer.first.items())) for answer in found.after.values()]
    assert len(set(firsts)) == len(POLICIES)


def test_damage_in_a_layer_that_comes_late_is_as_if_the_chunk_were_gone(found: Overlap) -> None:
    assert found.damaged is not None
    assert found.gone is not None
    assert found.damaged.report["missed_chunks"] == found.gone.report["missed_chunks"] == 1
    assert found.damaged.report["computed"] == found.gone.report["computed"]
    assert found.damaged.report["computed"] >= found.lost_tokens
    assert found.damaged.first == found.gone.first
    assert found.damaged.text == found.gone.text
