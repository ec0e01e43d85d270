"""Unfinished: an answer that one engine after another may write, as far as its reader has it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.engine_values import Generated, Sampling
from fuse.plan import FusePlan

_CONTEXT = 8
"""Prompt tokens in front of the answer when it is decoded: some tokenizers write a text's first token differently."""

Decode = Callable[[Sequence[int]], str]


class Unfinished:
    """One request and what has come of its answer.

    Engines hold text back: half a character, or what may turn out to be a stop string. So the next one starts behind
    the last token whose text is out in full, and the reader is spared what it writes again.
    """

    def __init__(self, prompt: Sequence[int], sampling: Sampling, plan: FusePlan | None, decode: Decode) -> None:
        self._prompt = prompt
        self._sampling = sampling
        self._plan = plan
        self._decode = decode
        self._tokens: list[int] = []
        self._text = ""
        self._known_tokens = 0
        self._known_text = 0

    def request(self) -> tuple[list[int], Sampling, FusePlan | None]:
        """Return what to ask the next engine for: prompt, sampling and plan. Its pieces then go to `take`."""
        kept = self._delivered()
        self._known_tokens += len(self._tokens) - kept
        self._known_text = len(self._text) - len(self._written(kept))
        del self._tokens[kept:]
        sampling = replace(self._sampling, max_tokens=self._sampling.max_tokens - kept)
        plan = replace(self._plan, answered=kept) if self._plan else None
        return [*self._prompt, *self._tokens], sampling, plan

    def take(self, piece: Generated) -> Generated:
        """Return what is new to the reader in an engine's next piece."""
        self._tokens += piece.token_ids
        tokens, text = piece.token_ids[self._known_tokens :], piece.text[self._known_text :]
        self._known_tokens -= min(self._known_tokens, piece.tokens)
        self._known_text -= min(self._known_text, len(piece.text))
        self._text += text
        return replace(
            piece,
            text=text,
            token_ids=tokens,
            # Another request of the same answer may have left more than the prompt in the engine's prefix cache.
            cached_tokens=min(piece.cached_tokens, len(self._prompt)),
            logprobs=piece.logprobs[len(piece.logprobs) - len(tokens) :],
        )

    def _delivered(self) -> int:
        """Return how many tokens' text the reader has in full."""
        return next(kept for kept in range(len(self._tokens), -1, -1) if self._text.startswith(self._written(kept)))

    def _written(self, tokens: int) -> str:
        before = self._prompt[-_CONTEXT:]
        return self._decode([*before, *self._tokens[:tokens]])[len(self._decode(before)) :]
