"""The cut: how many, how long, how relevant."""

from cascade.select import LOW_COSINE, TopKSelector
from cascade.types import Passage, ScoredPassage


def candidates(*lengths: int, cosine: float = 0.8) -> list[ScoredPassage]:
    return [
        ScoredPassage(
            Passage(f"p{n}", "d", n, "t", "x", 0, 1, tuple(range(length)), "k"), 1 / (n + 1), cosine, 2.0, n + 1
        )
        for n, length in enumerate(lengths)
    ]


def chosen(selector: TopKSelector, *lengths: int) -> list[str]:
    return [scored.passage.id for scored in selector.select(candidates(*lengths)).passages]


def test_the_best_k_are_chosen_in_order() -> None:
    assert chosen(TopKSelector(2, 1000), 100, 100, 100) == ["p0", "p1"]


def test_the_token_budget_holds_and_is_filled() -> None:
    assert chosen(TopKSelector(5, 250), 100, 200, 150, 1) == ["p0", "p2"]


def test_the_rule_and_the_number_considered_are_told() -> None:
    selection = TopKSelector(5, 250).select(candidates(100, 200, 150, 1))
    assert selection.rule == "top 5 within 250 tokens, 2 passed over for size"
    assert selection.considered == 4
    assert TopKSelector(2, 250).select(candidates(1)).rule == "top 2 within 250 tokens"


def test_low_relevance() -> None:
    selector = TopKSelector(2, 1000)
    assert selector.select(candidates(10, cosine=LOW_COSINE - 0.01)).low_relevance
    assert not selector.select(candidates(10, cosine=LOW_COSINE)).low_relevance
    assert selector.select([]).low_relevance
