"""An answer that one engine after another writes reads as if one had written it all."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine_values import Generated, Sampling
from app.unfinished import Unfinished
from fuse.plan import FusePlan, PolicySpec, Segment

PROMPT = [1, 2, 3]
PLAN = FusePlan("f" * 64, (Segment(2),), PolicySpec("none"))
ANSWER = "The río Añset is 212 km → long".encode()
"""One token a byte: a character may take several, and none is written before it is whole."""


def as_text(token_ids: Sequence[int]) -> str:
    return bytes(token_ids).decode(errors="replace")


def written(token_ids: Sequence[int], held_back: int) -> str:
    """What an engine has streamed of these tokens' text, when it holds back so many characters besides a broken one."""
    whole = bytes(token_ids).decode(errors="ignore")
    return whole[: len(whole) - held_back] if held_back else whole


class Writer:
    """An engine that writes `ANSWER` on from wherever it is asked to, in pieces."""

    def __init__(self, prompt: Sequence[int], piece: int, held_back: int) -> None:
        self._from = len(prompt) - len(PROMPT)
        self._piece = piece
        self._held_back = held_back
        assert prompt == [*PROMPT, *ANSWER[: self._from]]

    def pieces(self, tokens: int) -> list[Generated]:
        """Its first `tokens` tokens; all text is out when they end the answer."""
        ours = ANSWER[self._from :][:tokens]
        ended = self._from + tokens >= len(ANSWER)
        pieces, out = [], 0
        for start in range(0, len(ours), self._piece):
            taken = ours[start : start + self._piece]
            last = ended and start + self._piece >= len(ours)
            text = written(ours[: start + len(taken)], 0 if last else self._held_back)
            pieces.append(Generated(text[out:], tuple(taken), 99, "stop" if last else None, {}))
            out = max(out, len(text))
        return pieces


@given(
    deaths=st.lists(st.integers(0, 12), max_size=5), piece=st.integers(1, 4), held_back=st.sampled_from([0, 0, 1, 3, 7])
)
def test_nothing_is_lost_or_said_twice(deaths: list[int], piece: int, held_back: int) -> None:
    unfinished = Unfinished(PROMPT, Sampling(len(ANSWER)), PLAN, as_text)
    got = list[Generated]()
    for tokens in [*deaths, len(ANSWER)]:
        prompt, sampling, plan = unfinished.request()
        assert plan is not None
        assert plan.answered == len(prompt) - len(PROMPT) == len(ANSWER) - sampling.max_tokens
        got += [unfinished.take(each) for each in Writer(prompt, piece, held_back).pieces(tokens)]
        if got and got[-1].finish_reason:
            break
    assert "".join(each.text for each in got) == ANSWER.decode()
    assert bytes(token for each in got for token in each.token_ids) == ANSWER
    assert all(each.cached_tokens == len(PROMPT) for each in got)


def test_an_answer_without_text_is_written_again_but_not_counted_again() -> None:
    unfinished = Unfinished(PROMPT, Sampling(3, logprobs=-1), None, as_text)
    pieces = [Generated("", (token,), 0, None, {}, ({token: -0.5},)) for token in b"abc"]
    assert unfinished.request() == (PROMPT, Sampling(3, logprobs=-1), None)
    first = [unfinished.take(piece) for piece in pieces[:2]]
    assert unfinished.request() == (PROMPT, Sampling(3, logprobs=-1), None)
    again = [unfinished.take(piece) for piece in pieces]
    assert [*first, *again] == [*pieces[:2], *(Generated("", (), 0, None, {}) for _ in range(2)), pieces[2]]


@pytest.mark.parametrize("tail", ["", "Ė"])
def test_what_a_tokenizer_writes_differently_at_the_start_is_recognised(tail: str) -> None:
    """Some leave out the space in front of a text's first word."""

    def stripped(token_ids: Sequence[int]) -> str:
        return as_text(token_ids).removeprefix(" ")

    unfinished = Unfinished(PROMPT, Sampling(20), None, stripped)
    unfinished.request()
    unfinished.take(Generated(" Bern", tuple(f" Bern{tail}".encode()), 0, None, {}))
    assert unfinished.request()[0] == [*PROMPT, *b" Bern"]
