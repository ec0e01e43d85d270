"""Prompts as token ids: the chat template's own text as control tokens, everything people wrote as plain text.

A prompt is `head + passages + tail`. Passages bring their own token ids; they stand in the last user message, before
the question.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from app.service_api import ChatMessage

DEFAULT_SYSTEM = "Answer the question with the documents."
NEUTRAL_SYSTEM = "These are documents."
"""The ingest head's line. Part of every chunk's fingerprint: changing it makes all stored chunks stale."""


class PlainEncoder(Protocol):
    """Encodes text that people wrote: never into control tokens."""

    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class PromptFrame:
    """The token ids around the passages."""

    head: tuple[int, ...]
    tail: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return len(self.head) + len(self.tail)


class PromptBuilder:
    """Builds prompt frames with one model's tokenizer and chat template."""

    def __init__(self, model: Path, plain: PlainEncoder) -> None:
        self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
        self._plain = plain

    def ingest_head(self) -> tuple[int, ...]:
        """Return the fixed tokens that every passage is computed behind."""
        return self.frame([ChatMessage("system", NEUTRAL_SYSTEM), ChatMessage("user", "")]).head

    def frame(self, messages: Sequence[ChatMessage]) -> PromptFrame:
        """Return the tokens before and after the passages; the last message is the user's question.

        A conversation without a system message gets `DEFAULT_SYSTEM`.
        """
        turns = list(messages)
        if turns[0].role != "system":
            turns.insert(0, ChatMessage("system", DEFAULT_SYSTEM))
        mark = f"kvfuse-{secrets.token_hex(8)}-"
        contents = [turn.content for turn in turns]
        names = [f"{mark}{index}." for index in range(len(turns))]
        split = f"{mark}context."
        names[-1] = f"{split}{names[-1]}"
        contents[-1] = f"Question: {contents[-1]}"
        rendered = self._render([{"role": turn.role, "content": name} for turn, name in zip(turns, names, strict=True)])
        before, after = rendered.split(split)
        return PromptFrame(self._encode(before, mark, contents), self._encode(after, mark, contents))

    def _render(self, messages: list[dict[str, str]]) -> str:
        """Apply the chat template; a template without a system role gets that text in the first user message."""
        try:
            return self._apply(messages)
        except Exception:
            system, first, *rest = messages
            merged = {"role": first["role"], "content": f"{system['content']}\n\n{first['content']}"}
            return self._apply([merged, *rest])

    def _apply(self, messages: list[dict[str, str]]) -> str:
        rendered: Any = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return str(rendered)

    def _encode(self, rendered: str, mark: str, contents: Sequence[str]) -> tuple[int, ...]:
        """Encode template text with control tokens and each marked place with its content's plain tokens."""
        ids: list[int] = []
        for index, piece in enumerate(re.split(rf"{re.escape(mark)}(\d+)\.", rendered)):
            if index % 2:
                ids += self._plain.encode(contents[int(piece)])
            elif piece:
                ids += self._tokenizer.encode(piece, add_special_tokens=False)
        return tuple(ids)
