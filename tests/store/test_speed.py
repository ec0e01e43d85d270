import pytest

from store import speed
from store.speed import LoadSpeed


def test_an_unknown_speed_is_tried() -> None:
    estimate = LoadSpeed().compare(300, "remote", 1000)
    assert (estimate.load_s, estimate.prefill_s, estimate.worth_loading) == (None, 0.3, True)


@pytest.mark.parametrize(("seconds", "worth"), [(0.1, True), (10.0, False)])
def test_the_faster_way_wins(seconds: float, worth: bool) -> None:
    speeds = LoadSpeed()
    speeds.observe("disk", 1000, seconds)
    estimate = speeds.compare(500, "disk", 1000)
    assert estimate.load_s == pytest.approx(seconds / 2)
    assert estimate.worth_loading is worth
    assert speeds.compare(500, "memory", 1000).load_s is None


def test_the_average_moves_towards_the_newest() -> None:
    speeds = LoadSpeed()
    speeds.observe("disk", 1000, 1.0)
    for _ in range(30):
        speeds.observe("disk", 1000, 4.0)
    assert speeds.snapshot()["disk"] == pytest.approx(250, rel=0.05)


def test_old_measurements_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = LoadSpeed()
    speeds.observe("disk", 1000, 100.0)
    assert not speeds.compare(1000, "disk", 1000).worth_loading
    monkeypatch.setattr(speed, "FORGET_SECONDS", 0.0)
    assert speeds.compare(1000, "disk", 1000).worth_loading
    assert speeds.snapshot() == {}


def test_a_prefill_speed_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="expected more than 0"):
        LoadSpeed().compare(1, "disk", 0)


def test_small_chunks_are_always_loaded() -> None:
    speeds = LoadSpeed()
    speeds.observe("disk", 1000, 1000.0)
    assert not speeds.compare(speed.SMALLEST, "disk", 1000).worth_loading
    assert speeds.compare(speed.SMALLEST - 1, "disk", 1000).worth_loading


def test_one_stall_does_not_make_a_tier_slow_but_several_do() -> None:
    speeds = LoadSpeed()
    for _ in range(5):
        speeds.observe("memory", 10, 0.001)
    speeds.observe("memory", 10, 2.0)
    assert speeds.compare(300, "memory", 1000).worth_loading
    for _ in range(30):
        speeds.observe("memory", 10, 2.0)
    assert not speeds.compare(300, "memory", 1000).worth_loading
