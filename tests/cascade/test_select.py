"""The cut: how many, how long, how relevant."""

import pytest

from cascade.select import GapSelector, Selector, TopKSelector
from cascade.types import Passage, Relevance, ScoredPassage


def candidates(
    *lengths: int, scores: tuple[float, ...] = (), relevance: Relevance = Relevance.GOOD
) -> list[ScoredPassage]:
    return [
        ScoredPassage(
            Passage(f"p{n}", "d", n, "t", "x", 0, 1, tuple(range(length)), "k"),
            scores[n] if scores else -float(n),
            0.5,
            2.0,
            n + 1,
            relevance=relevance,
        )
        for n, length in enumerate(lengths)
    ]


def chosen(selector: Selector, found: list[ScoredPassage]) -> list[str]:
    return [scored.passage.id for scored in selector.select(found).passages]


def scored(*scores: float) -> list[ScoredPassage]:
    return candidates(*[10] * len(scores), scores=scores)


def test_the_best_k_are_chosen_in_order() -> None:
    assert chosen(TopKSelector(2, 1000), candidates(100, 100, 100)) == ["p0", "p1"]


def test_the_token_budget_holds_and_is_filled() -> None:
    assert chosen(TopKSelector(5, 250), candidates(100, 200, 150, 1)) == ["p0", "p2"]


def test_the_rule_and_the_number_considered_are_told() -> None:
    selection = TopKSelector(5, 250).select(candidates(100, 200, 150, 1))
    assert selection.rule == "top 5, within 250 tokens, 2 passed over for size"
    assert selection.considered == 4
    assert TopKSelector(2, 250).select(candidates(1)).rule == "top 2, within 250 tokens"


def test_one_clear_answer_is_one_passage() -> None:
    assert chosen(GapSelector(6, 1000), scored(9, 2, 1.9, 1.8, 1.7, 1.6)) == ["p0"]


def test_rivals_come_along() -> None:
    assert chosen(GapSelector(6, 1000), scored(9, 8.8, 8.7, 1.8, 1.7, 1.6)) == ["p0", "p1", "p2"]


def test_the_gap_is_in_standard_deviations() -> None:
    found = scored(3, 2, 1, 0)  # 1.118 between the outer and the mean
    assert chosen(GapSelector(6, 1000, gap=0.8), found) == ["p0"]
    assert chosen(GapSelector(6, 1000, gap=0.9), found) == ["p0", "p1"]
    assert chosen(GapSelector(6, 1000, gap=0.9), scored(3000, 2000, 1000, 0)) == ["p0", "p1"]


def test_equals_all_pass_up_to_the_most() -> None:
    assert chosen(GapSelector(3, 1000), scored(1, 1, 1, 1)) == ["p0", "p1", "p2"]


def test_a_best_passage_too_long_gives_its_place_to_the_next() -> None:
    found = candidates(2000, 10, 10, scores=(9, 8.9, 1))
    assert chosen(GapSelector(6, 1000), found) == ["p1"]


def test_the_gap_rule_is_told() -> None:
    rule = "within 1.5 standard deviations of the best, at most 6, within 900 tokens"
    assert GapSelector(6, 900).select(scored(9, 1)).rule == rule


@pytest.mark.parametrize("selector", [TopKSelector(2, 1000), GapSelector(2, 1000)])
def test_relevance(selector: Selector) -> None:
    assert not selector.select(candidates(10, 10)).low_relevance
    weak = selector.select(candidates(10, 10, relevance=Relevance.LOW))
    assert (weak.low_relevance, len(weak.passages) > 0) == (True, True)
    none = selector.select(candidates(10, 10, relevance=Relevance.NONE))
    assert (none.passages, none.low_relevance, none.considered, none.relevance) == ((), True, 2, Relevance.NONE)
    assert weak.relevance is Relevance.LOW
    assert none.rule == "none: all 2 candidates are beside the question"
    assert selector.select([]).low_relevance


def test_one_relevant_passage_brings_its_neighbours() -> None:
    found = [*candidates(10), *candidates(10, scores=(-0.1,), relevance=Relevance.NONE)]
    assert len(TopKSelector(2, 1000).select(found).passages) == 2
