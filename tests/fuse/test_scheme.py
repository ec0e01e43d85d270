"""IngestScheme: the prefills that store a passage."""

import pytest

from fuse.plan import SaveStage
from fuse.scheme import IngestScheme, Predecessor
from store.keys import ChunkKey

HEAD, GENERIC, PASSAGE = (1, 2), ((10, 11, 12), (20, 21)), (5, 6, 7, 8)
KEY, BEFORE = ChunkKey("a" * 64), Predecessor(ChunkKey("b" * 64), (30, 31, 32, 33))


def test_two_passes_behind_a_generic_passage_with_and_without_the_predecessor() -> None:
    first, second = IngestScheme(HEAD, GENERIC).steps(KEY, "f" * 64, PASSAGE, BEFORE)
    assert first.token_ids == (*HEAD, *GENERIC[0], *BEFORE.token_ids, *PASSAGE)
    assert (first.order.start, first.order.end) == (9, 13)
    assert (first.order.stage, first.order.predecessor) == (SaveStage.FIRST, BEFORE.key)
    assert second.token_ids == (*HEAD, *GENERIC[0], *PASSAGE)
    assert (second.order.start, second.order.end) == (5, 9)
    assert second.order.stage is SaveStage.SECOND


def test_a_passage_shares_its_prefix_with_the_passage_behind_it() -> None:
    scheme = IngestScheme(HEAD, GENERIC)
    _, second = scheme.steps(BEFORE.key, "f" * 64, BEFORE.token_ids)
    first, _ = scheme.steps(KEY, "f" * 64, PASSAGE, BEFORE)
    assert first.token_ids[: len(second.token_ids)] == second.token_ids


def test_no_prompt_of_an_ingest_is_longer_than_announced() -> None:
    for scheme in (IngestScheme(HEAD, GENERIC), IngestScheme(HEAD, GENERIC, passes=1), IngestScheme.alone(HEAD)):
        for before in (None, BEFORE):
            longest = max(len(step.token_ids) for step in scheme.steps(KEY, "f" * 64, PASSAGE, before))
            assert longest + 1 <= scheme.prompt_tokens(4)
    assert IngestScheme(HEAD, GENERIC).prompt_tokens(4) == 14
    assert IngestScheme.alone(HEAD).prompt_tokens(4) == 6


def test_the_first_passage_of_a_document_stands_behind_two_generic_ones() -> None:
    first, second = IngestScheme(HEAD, GENERIC).steps(KEY, "f" * 64, PASSAGE)
    assert first.token_ids == (*HEAD, *GENERIC[0], *GENERIC[1], *PASSAGE)
    assert first.order.predecessor == ""
    assert second.token_ids == (*HEAD, *GENERIC[0], *PASSAGE)


def test_one_pass_is_behind_a_generic_passage() -> None:
    (step,) = IngestScheme(HEAD, GENERIC, passes=1).steps(KEY, "f" * 64, PASSAGE, BEFORE)
    assert step.token_ids == (*HEAD, *GENERIC[0], *PASSAGE)
    assert (step.order.stage, step.order.predecessor) == (SaveStage.ONLY, "")


def test_alone_is_behind_the_first_token_only() -> None:
    (step,) = IngestScheme.alone(HEAD).steps(KEY, "f" * 64, PASSAGE, BEFORE)
    assert step.token_ids == (HEAD[0], *PASSAGE)
    assert (step.order.start, step.order.end) == (1, 5)
    assert (step.order.stage, step.order.predecessor) == (SaveStage.ONLY, "")


def test_everything_fixed_enters_the_description() -> None:
    schemes = [
        IngestScheme(HEAD, GENERIC),
        IngestScheme(HEAD, GENERIC, passes=1),
        IngestScheme((1, 3), GENERIC),
        IngestScheme(HEAD, (GENERIC[1], GENERIC[0])),
        IngestScheme.alone(HEAD),
    ]
    assert len({scheme.describe() for scheme in schemes}) == len(schemes)


def test_other_numbers_of_passes_are_refused() -> None:
    with pytest.raises(ValueError, match="1 or 2 passes, not 3"):
        IngestScheme(HEAD, GENERIC, passes=3)
