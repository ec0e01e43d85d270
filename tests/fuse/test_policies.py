"""Recompute policies: which positions each chooses, on evidence laid out by hand."""

import itertools
from dataclasses import dataclass, field

import pytest
import torch

from fuse.errors import PlanError
from fuse.plan import FusePlan, PolicySpec, Segment
from fuse.policies import POLICIES, make_policy
from fuse.runs import Run
from store.keys import ChunkKey

KEY = ChunkKey("a" * 64)
HEAD, CONTEXT = 10, 110
PLAN = FusePlan("f" * 64, (Segment(HEAD), Segment(50, KEY), Segment(10, KEY), Segment(40, KEY)), PolicySpec("none"))


@dataclass
class Facts:
    """Evidence written down by a test."""

    scores: dict[str, torch.Tensor] = field(default_factory=dict)
    behind: list[Run] = field(default_factory=list)
    chunks: list[Run] = field(default_factory=lambda: [(10, 60), (60, 70), (70, 110)])
    costs: torch.Tensor = field(default_factory=lambda: torch.ones(CONTEXT, dtype=torch.float64))
    plan: FusePlan = PLAN

    def loaded(self) -> list[Run]:
        return self.chunks

    def following(self) -> list[Run]:
        return self.behind

    def work(self) -> torch.Tensor:
        return self.costs

    def variance(self) -> torch.Tensor:
        return self.scores["variance"].clone()

    def attention(self) -> torch.Tensor:
        return self.scores["attention"].clone()

    def deviation(self) -> torch.Tensor:
        return self.scores["deviation"].clone()


def scored(*tops: int) -> torch.Tensor:
    """Return scores whose highest are at `tops`, falling from first to last, on a low floor elsewhere."""
    scores = torch.full((CONTEXT,), 0.001)
    for rank, position in enumerate(tops):
        scores[position] = 10.0 - rank
    return scores


def select(name: str, facts: Facts | None = None, **options: float) -> list[Run]:
    return make_policy(PolicySpec(name, options)).select(facts or Facts())


def tokens(runs: list[Run]) -> int:
    return sum(end - start for start, end in runs)


def positions(runs: list[Run]) -> set[int]:
    return {position for start, end in runs for position in range(start, end)}


def test_boundary_takes_the_start_of_every_loaded_chunk_and_no_more_than_it_has() -> None:
    assert select("boundary", tokens=16) == [(10, 26), (60, 86)]
    assert select("boundary", Facts(chunks=[(70, 110)]), tokens=16) == [(70, 86)]


def test_boundary_defaults_to_32_tokens() -> None:
    assert select("boundary") == [(10, 42), (60, 102)]


def test_none_and_full() -> None:
    assert select("none") == []
    assert select("full") == [(0, CONTEXT)]


@pytest.mark.parametrize(
    ("name", "evidence"), [("query", "attention"), ("variance", "variance"), ("deviation", "deviation")]
)
def test_a_share_is_spent_on_the_highest_scores(name: str, evidence: str) -> None:
    facts = Facts({evidence: scored(20, 40, 90)})
    assert select(name, facts, share=0.03) == [(20, 21), (40, 41), (90, 91)]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.15, 0.5, 1.0])
def test_a_share_is_kept_when_neighbours_merge_into_runs(share: float) -> None:
    generator = torch.Generator().manual_seed(3)
    facts = Facts({"attention": torch.rand(CONTEXT, generator=generator)})
    runs = select("query", facts, share=share)
    assert tokens(runs) <= share * 100
    assert tokens(runs) >= share * 100 - 10  # a merge takes whole gaps or leaves them
    assert all(later[0] - earlier[1] > 4 for earlier, later in itertools.pairwise(runs))


def test_the_share_is_one_of_the_work_too() -> None:
    """The last tokens take more than the first ones, and so fewer of them are chosen."""
    costs = torch.arange(CONTEXT, dtype=torch.float64) + 1
    late = torch.arange(CONTEXT, dtype=torch.float32)
    early = late.flip(0)
    runs = select("query", Facts({"attention": late}, costs=costs), share=0.2)
    assert sum(float(costs[start:end].sum()) for start, end in runs) <= 0.2 * float(costs[HEAD:].sum())
    assert 8 <= tokens(runs) < 20
    assert tokens(select("query", Facts({"attention": early}, costs=costs), share=0.2)) == 20
    assert tokens(select("query", Facts({"attention": late}, costs=costs), share=1.0)) == 100


def test_nothing_outside_loaded_chunks_is_chosen() -> None:
    facts = Facts({"attention": scored(0, 5, 30, 65, 100)}, chunks=[(60, 70)])
    assert select("query", facts, share=0.1) == [(65, 66)]


def test_a_passage_behind_its_predecessor_gets_little() -> None:
    facts = Facts({"attention": torch.ones(CONTEXT)}, behind=[(10, 60)])
    runs = select("query", facts, share=0.3)
    assert all(start >= 60 for start, _ in runs)


def test_deviation_takes_the_very_tokens_that_change_most() -> None:
    facts = Facts({"deviation": scored(0, 12, 14, 80, 61, 62)}, behind=[(60, 70)])
    assert select("deviation", facts, share=0.05) == [(12, 13), (14, 15), (61, 63), (80, 81)]
    assert select("deviation", Facts(facts.scores, chunks=[]), share=0.05) == []


def test_tokens_between_near_ones_are_taken_with_them() -> None:
    facts = Facts({"attention": scored(20, 25, 50, 56)})
    assert select("query", facts, share=0.08) == [(20, 26), (50, 51), (56, 57)]


def test_hybrid_wants_both_attention_and_variance() -> None:
    attention, variance = scored(20, 30, 80), scored(30, 50, 80)
    assert select("hybrid", Facts({"attention": attention, "variance": variance}), share=0.02) == [(30, 31), (80, 81)]


def test_hybrid_on_chunks_without_variance_takes_their_start_and_what_the_question_asks() -> None:
    variance = torch.ones(CONTEXT)
    variance[70:110] = torch.nan
    runs = select("hybrid", Facts({"attention": scored(100, 20), "variance": variance}), share=0.2)
    assert {70, 71, 72, 73, 100} <= positions(runs)
    assert tokens(runs) <= 20


def test_hybrid_without_any_variance_still_keeps_its_share() -> None:
    facts = Facts({"attention": scored(30, 90), "variance": torch.full((CONTEXT,), torch.nan)})
    assert select("hybrid", facts, share=0.0) == []
    runs = select("hybrid", facts, share=0.3)
    assert {10, 60, 70, 30, 90} <= positions(runs)
    assert tokens(runs) <= 30


@pytest.mark.parametrize(
    "spec",
    [
        PolicySpec("guess"),
        PolicySpec("boundary", {"tokens": -1}),
        PolicySpec("boundary", {"share": 0.1}),
        PolicySpec("none", {"tokens": 1}),
        PolicySpec("hybrid", {"share": 1.5}),
        PolicySpec("query", {"share": -0.1}),
    ],
)
def test_unknown_names_and_options_are_refused(spec: PolicySpec) -> None:
    with pytest.raises(PlanError):
        make_policy(spec)


def test_an_unknown_name_lists_the_supported_ones() -> None:
    with pytest.raises(PlanError, match=", ".join(POLICIES)):
        make_policy(PolicySpec("guess"))
