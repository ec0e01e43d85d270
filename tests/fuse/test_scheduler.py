"""The scheduler's half: what is ordered of the worker in every life that a request can have."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fuse.connector.metadata import FuseMetadata
from fuse.connector.scheduler import FuseScheduler
from fuse.plan import FusePlan, PolicySpec, SaveOrder, Segment
from store.keys import ChunkKey

PLAN = FusePlan("f" * 64, (Segment(10), Segment(100, ChunkKey("a" * 64)), Segment(50)), PolicySpec("none"))
ORDER = SaveOrder(ChunkKey("a" * 64), "f" * 64, 10, 110)
PROMPT = list(range(180))
BLOCKS = [4, 7, 9]


@dataclass
class FakeRequest:
    """The attributes of a vLLM request that are read."""

    kv_transfer_params: Any
    cache_salt: str | None = "salt"
    prompt_token_ids: list[int] | None = field(default_factory=lambda: list(PROMPT))
    num_computed_tokens: int = 0
    request_id: str = "r"

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids or ())


@dataclass
class New:
    req_id: str
    block_ids: tuple[list[int], ...]


@dataclass
class Cached:
    req_ids: list[str] = field(default_factory=list)
    new_block_ids: list[tuple[list[int], ...] | None] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)


@dataclass
class FakeOutput:
    """The attributes of a vLLM scheduler output that are read."""

    scheduled_new_reqs: list[New] = field(default_factory=list)
    scheduled_cached_reqs: Cached = field(default_factory=Cached)
    total_num_scheduled_tokens: int = 0


def step(scheduler: FuseScheduler, output: FakeOutput | None = None) -> FuseMetadata:
    return scheduler.build_metadata(output or FakeOutput())  # type: ignore[arg-type]


def first_run(blocks: Sequence[int]) -> FakeOutput:
    return FakeOutput([New("r", (list(blocks),))], total_num_scheduled_tokens=20)


def decode_step() -> FakeOutput:
    return FakeOutput(scheduled_cached_reqs=Cached(["r"], [None]), total_num_scheduled_tokens=1)


def resumed(blocks: Sequence[int]) -> FakeOutput:
    return FakeOutput(scheduled_cached_reqs=Cached(["r"], [(list(blocks),)], {"r"}), total_num_scheduled_tokens=20)


@pytest.fixture
def scheduler() -> FuseScheduler:
    return FuseScheduler(fusable=True)


@pytest.fixture
def request_() -> FakeRequest:
    return FakeRequest(PLAN.to_params("tag"))


def load(scheduler: FuseScheduler, request: Any, computed: int = 0, blocks: Sequence[int] = BLOCKS) -> FuseMetadata:
    """Offer, allocate and order the load, as vLLM does in one step."""
    matched = scheduler.matched_tokens(request, computed)
    scheduler.allocated(request, list(blocks), matched)
    return step(scheduler)


def test_a_request_is_loaded_first_and_recomputed_when_it_starts(scheduler: FuseScheduler, request_: Any) -> None:
    assert scheduler.matched_tokens(request_, 0) == PLAN.context_tokens
    ordered = load(scheduler, request_)
    (job,) = ordered.loads
    assert (job.request_id, job.plan, list(job.block_ids), job.start, job.tag) == ("r", PLAN, BLOCKS, 0, "tag")
    assert ordered.recomputes == []
    assert ordered.idle
    assert step(scheduler) == FuseMetadata(idle=True)  # still loading
    started = step(scheduler, first_run([*BLOCKS, 11]))
    (recompute,) = started.recomputes
    assert (recompute.request_id, list(recompute.token_ids)) == ("r", PROMPT)
    assert list(recompute.block_ids) == [*BLOCKS, 11]
    assert started.loads == []
    assert not started.idle
    assert step(scheduler, decode_step()) == FuseMetadata()
    assert not scheduler.finished(request_, BLOCKS)
    assert step(scheduler) == FuseMetadata(idle=True)


def test_what_is_offered_is_free_of_side_effects(scheduler: FuseScheduler, request_: Any) -> None:
    """vLLM asks again in every step in which the request does not fit."""
    assert {scheduler.matched_tokens(request_, 0) for _ in range(3)} == {PLAN.context_tokens}
    assert step(scheduler) == FuseMetadata(idle=True)
    assert not scheduler.finished(request_, [])
    assert step(scheduler).dropped == []


@pytest.mark.parametrize(("computed", "offered"), [(32, 128), (128, 32), (160, 0), (176, 0)])
def test_a_cached_prefix_is_not_loaded_again(
    scheduler: FuseScheduler, request_: Any, computed: int, offered: int
) -> None:
    assert scheduler.matched_tokens(request_, computed) == offered
    ordered = load(scheduler, request_, computed)
    assert [job.start for job in ordered.loads] == ([computed] if offered else [])
    assert len(step(scheduler, first_run(BLOCKS)).recomputes) == len(ordered.loads)


def test_allocation_after_the_load_orders_nothing(scheduler: FuseScheduler, request_: Any) -> None:
    load(scheduler, request_)
    scheduler.allocated(request_, [*BLOCKS, 11], 0)
    started = step(scheduler, first_run([*BLOCKS, 11]))
    assert started.loads == []
    assert len(started.recomputes) == 1


def test_a_preempted_request_is_loaded_and_recomputed_again(scheduler: FuseScheduler, request_: Any) -> None:
    load(scheduler, request_)
    step(scheduler, first_run(BLOCKS))
    again = load(scheduler, request_, computed=64, blocks=[1, 2, 3])
    assert [(job.start, list(job.block_ids)) for job in again.loads] == [(64, [1, 2, 3])]
    started = step(scheduler, resumed([1, 2, 3, 5]))
    assert [list(job.block_ids) for job in started.recomputes] == [[1, 2, 3, 5]]
    assert not scheduler.finished(request_, [])
    assert step(scheduler).dropped == []


def test_a_preempted_request_found_in_the_prefix_cache_is_not(scheduler: FuseScheduler, request_: Any) -> None:
    load(scheduler, request_)
    step(scheduler, first_run(BLOCKS))
    assert load(scheduler, request_, computed=160).loads == []
    assert step(scheduler, resumed(BLOCKS)).recomputes == []


def test_aborted_while_loading_is_dropped_once(scheduler: FuseScheduler, request_: Any) -> None:
    load(scheduler, request_)
    assert not scheduler.finished(request_, BLOCKS)
    assert step(scheduler).dropped == ["r"]
    assert step(scheduler).dropped == []


def test_blocks_loaded_but_not_recomputed_leave_the_prefix_cache(scheduler: FuseScheduler, request_: Any) -> None:
    evicted: list[set[int]] = []
    scheduler.evict = evicted.append
    load(scheduler, request_)
    scheduler.finished(request_, BLOCKS)
    assert evicted == [set(BLOCKS)]


def test_a_request_that_was_recomputed_keeps_its_blocks(scheduler: FuseScheduler, request_: Any) -> None:
    evicted: list[set[int]] = []
    scheduler.evict = evicted.append
    load(scheduler, request_)
    step(scheduler, first_run(BLOCKS))
    scheduler.finished(request_, BLOCKS)
    assert evicted == []


def test_aborted_before_the_load_or_after_the_start_needs_no_drop(scheduler: FuseScheduler, request_: Any) -> None:
    assert not scheduler.finished(request_, [])
    load(scheduler, request_)
    step(scheduler, first_run(BLOCKS))
    assert not scheduler.finished(request_, BLOCKS)
    assert step(scheduler).dropped == []


def test_requests_are_kept_apart(scheduler: FuseScheduler) -> None:
    one, two = FakeRequest(PLAN.to_params("1"), request_id="r"), FakeRequest(PLAN.to_params("2"), request_id="s")
    scheduler.allocated(one, [1], 160)  # type: ignore[arg-type]
    scheduler.allocated(two, [2], 160)  # type: ignore[arg-type]
    assert [(job.request_id, job.tag) for job in step(scheduler).loads] == [("r", "1"), ("s", "2")]
    assert [job.request_id for job in step(scheduler, first_run([1])).recomputes] == ["r"]
    scheduler.finished(two, [2])  # type: ignore[arg-type]
    assert step(scheduler).dropped == ["s"]


@pytest.mark.parametrize(
    "request_",
    [
        FakeRequest(None),
        FakeRequest({"do_remote_prefill": True}),
        FakeRequest(PLAN.to_params(), cache_salt=None),
        FakeRequest(PLAN.to_params(), prompt_token_ids=PROMPT[:160]),
        FakeRequest(PLAN.to_params(), prompt_token_ids=PROMPT[:20]),
        FakeRequest(replace(PLAN, answered=20).to_params()),
        FakeRequest(FusePlan("f" * 64, PLAN.segments, PolicySpec("guess")).to_params()),
        FakeRequest(FusePlan("f" * 64, PLAN.segments, PolicySpec("boundary", {"tokens": -1})).to_params()),
        FakeRequest(FusePlan("f" * 64, PLAN.segments, PolicySpec("hybrid", {"budget": float("nan")})).to_params()),
        FakeRequest({"kvfuse": {"op": "fuse", "segments": "everything"}}),
        FakeRequest({"kvfuse": [1, 2]}),
    ],
    ids=[
        "nothing",
        "others'",
        "no salt",
        "no tail",
        "too long",
        "nothing but an answer behind it",
        "no such policy",
        "bad option",
        "NaN",
        "malformed",
        "list",
    ],
)
def test_a_request_that_cannot_be_fused_is_ordinary(scheduler: FuseScheduler, request_: Any) -> None:
    assert scheduler.matched_tokens(request_, 0) == 0
    scheduler.allocated(request_, BLOCKS, 0)
    assert step(scheduler, first_run(BLOCKS)) == FuseMetadata()
    assert not scheduler.finished(request_, BLOCKS)
    assert step(scheduler) == FuseMetadata(idle=True)


HOSTILE: dict[str, Any] = {
    "text instead of a mapping": "boom",
    "a list instead of a mapping": ["kvfuse"],
    "NaN option": FusePlan("f" * 64, PLAN.segments, PolicySpec("boundary", {"tokens": float("nan")})).to_params(),
    "infinite option": FusePlan("f" * 64, PLAN.segments, PolicySpec("boundary", {"tokens": float("inf")})).to_params(),
    "infinite segment": {"kvfuse": {**PLAN.to_params()["kvfuse"], "segments": [[float("inf"), None]]}},
}


@pytest.mark.parametrize("params", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_parameters_do_not_stop_the_engine(scheduler: FuseScheduler, params: Any) -> None:
    """An error here would end the engine process, with every request in it."""
    request: Any = FakeRequest(params)
    assert scheduler.matched_tokens(request, 0) == 0
    scheduler.allocated(request, BLOCKS, 0)
    assert not scheduler.finished(request, BLOCKS)
    assert step(scheduler) == FuseMetadata(idle=True)


@pytest.mark.parametrize(("computed", "saved"), [(180, True), (110, True), (109, False), (0, False)])
def test_a_save_needs_its_range_computed(scheduler: FuseScheduler, computed: int, saved: bool) -> None:
    """An aborted ingest request is saved only if the passage was through."""
    request: Any = FakeRequest(ORDER.to_params("tag"), cache_salt=None, num_computed_tokens=computed)
    assert scheduler.matched_tokens(request, 0) == 0
    assert scheduler.finished(request, BLOCKS) is saved
    jobs = step(scheduler).saves
    assert [(job.request_id, job.order, list(job.block_ids), job.tag) for job in jobs] == [
        ("r", ORDER, BLOCKS, "tag")
    ] * saved
    assert step(scheduler).saves == []


def test_a_save_beyond_the_prompt_is_not_made(scheduler: FuseScheduler) -> None:
    """Generated tokens are no passage."""
    request: Any = FakeRequest(ORDER.to_params(), prompt_token_ids=PROMPT[:100], num_computed_tokens=150)
    assert not scheduler.finished(request, BLOCKS)
    assert step(scheduler).saves == []


@pytest.mark.parametrize("params", [PLAN.to_params(), ORDER.to_params()], ids=["plan", "save"])
def test_until_the_workers_have_agreed_everything_is_ordinary(params: Any) -> None:
    """A model that is refused, or an engine without our workers, would never load what it was promised."""
    scheduler, request = FuseScheduler(), FakeRequest(params, num_computed_tokens=180)
    ordered = load(scheduler, request)
    assert ordered == FuseMetadata(idle=True)
    assert not scheduler.finished(request, BLOCKS)  # type: ignore[arg-type]
    assert step(scheduler) == FuseMetadata(idle=True)
