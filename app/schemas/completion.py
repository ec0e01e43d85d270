"""OpenAI's chat completion answers, whole and in chunks, with our account of the work beside them."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import BaseModel

from app.service_api import AnswerDone


class PromptTokensDetails(BaseModel):
    """Of the prompt's tokens, those whose K/V was reused."""

    cached_tokens: int


class Usage(BaseModel):
    """Tokens of one answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails

    @classmethod
    def of(cls, done: AnswerDone) -> Self:
        """Usage of a finished answer."""
        return cls(
            prompt_tokens=done.prompt_tokens,
            completion_tokens=done.completion_tokens,
            total_tokens=done.prompt_tokens + done.completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=done.cached_tokens),
        )


class AnswerMessage(BaseModel):
    """The answer's text."""

    role: Literal["assistant"] = "assistant"
    content: str


class Choice(BaseModel):
    """The one answer."""

    index: Literal[0] = 0
    message: AnswerMessage
    finish_reason: str
    logprobs: None = None


class Completion(BaseModel):
    """A whole answer. ``kvfuse``: selection, tokens reused / recomputed / computed, timings, policy."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    kvfuse: dict[str, Any]


class ChunkChoice(BaseModel):
    """The one answer's next piece."""

    index: Literal[0] = 0
    delta: dict[str, str]
    finish_reason: str | None = None
    logprobs: None = None


class Chunk(BaseModel):
    """A piece of a streamed answer; ``kvfuse`` comes with the last choice, ``usage`` (if asked for) after it."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]


class LastChunk(Chunk):
    """The chunk that carries the finish reason."""

    kvfuse: dict[str, Any]


class UsageChunk(Chunk):
    """The chunk after the last choice."""

    usage: Usage


@dataclass(frozen=True)
class Reply:
    """Builds the answers to one request: they share an id, a model name and a time."""

    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, done: AnswerDone) -> Completion:
        """The answer in one piece."""
        choice = Choice(message=AnswerMessage(content=text), finish_reason=done.finish_reason)
        return Completion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[choice],
            usage=Usage.of(done),
            kvfuse=done.kvfuse,
        )

    def delta(self, **delta: str) -> Chunk:
        """A chunk that adds to the answer."""
        return Chunk(id=self.id, created=self.created, model=self.model, choices=[ChunkChoice(delta=delta)])

    def last(self, done: AnswerDone) -> LastChunk:
        """The chunk that ends the answer."""
        choice = ChunkChoice(delta={}, finish_reason=done.finish_reason)
        return LastChunk(id=self.id, created=self.created, model=self.model, choices=[choice], kvfuse=done.kvfuse)

    def usage(self, done: AnswerDone) -> UsageChunk:
        """The chunk with the token counts."""
        return UsageChunk(id=self.id, created=self.created, model=self.model, choices=[], usage=Usage.of(done))
