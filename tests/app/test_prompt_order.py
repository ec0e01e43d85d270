"""The order of passages in a prompt."""

from dataclasses import replace

from app.answering import prompt_order
from cascade.types import Passage, ScoredPassage

PASSAGE = Passage("p", "d", 0, "t", "text", 0, 4, (1,), "a" * 64)


def scored(document: str, ordinal: int, rank: int) -> ScoredPassage:
    passage = replace(PASSAGE, id=f"{document}-{ordinal}", document_id=document, ordinal=ordinal)
    return ScoredPassage(passage, 1.0 / rank, 0.0, 0.0, rank)


def order(*selected: ScoredPassage) -> list[str]:
    return [one.passage.id for one in prompt_order(selected)]


def test_the_most_relevant_comes_last() -> None:
    assert order(scored("a", 4, 1), scored("b", 2, 2), scored("c", 9, 3)) == ["c-9", "b-2", "a-4"]


def test_neighbours_stay_together_in_text_order() -> None:
    assert order(scored("a", 5, 1), scored("b", 0, 2), scored("a", 4, 3)) == ["b-0", "a-4", "a-5"]


def test_passages_of_one_document_that_are_no_neighbours_are_ranked_alone() -> None:
    assert order(scored("a", 1, 1), scored("a", 7, 3), scored("b", 2, 2)) == ["a-7", "b-2", "a-1"]


def test_no_passages() -> None:
    assert prompt_order(()) == ()
