"""OpenAI's chat completion request, with the options of fusion."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from app.config import Policy
from app.schemas.vector_stores import FilterBody, Id
from app.service_api import AnswerRequest, ChatMessage
from cascade.filters import EVERYTHING, Filter

NonEmptyText = Annotated[str, StringConstraints(min_length=1)]
INT64 = 2**63


class TextPart(BaseModel):
    """A piece of a message; only text is understood."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @field_validator("content")
    @classmethod
    def _whole_characters(cls, content: str | list[TextPart]) -> str | list[TextPart]:
        """Refuse half a surrogate pair, which JSON can hold and UTF-8 cannot."""
        for text in [content] if isinstance(content, str) else [part.text for part in content]:
            try:
                text.encode()
            except UnicodeEncodeError as error:
                half = ascii(text[error.start])
                raise ValueError(f"{half} at character {error.start} is half a surrogate pair, no character") from None
        return content

    @property
    def text(self) -> str:
        """The turn's text, parts joined."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    include_usage: bool = False


class TextFormat(BaseModel):
    """The only answer format there is."""

    type: Literal["text"]


class Scope(BaseModel):
    """Vector stores to answer from, and what their files' attributes must be."""

    vector_store_ids: list[Id] | None = Field(None, min_length=1, max_length=100)
    filters: FilterBody | None = None

    @model_validator(mode="after")
    def _filters_are_of_stores(self) -> "Scope":
        if self.filters is not None and self.vector_store_ids is None:
            raise ValueError("filters need vector_store_ids: attributes are those of files in vector stores")
        return self

    @property
    def where(self) -> Filter:
        """The filter; everything passes where none is given."""
        return EVERYTHING if self.filters is None else self.filters.to_filter()


class FileSearch(Scope):
    """OpenAI's tool of that name; here every question is searched for, so it only says where."""

    type: Literal["file_search"]
    max_num_results: int | None = Field(None, ge=1, le=50)


class KvfuseOptions(Scope):
    """Per-request choices of retrieval and fusion; what is absent follows the service's settings."""

    model_config = ConfigDict(extra="forbid")

    fuse: bool = Field(True, description="False answers with an ordinary prefill of the same prompt.")
    policy: Policy | None = None
    budget: float | None = Field(None, ge=0, le=1)
    boundary_tokens: int | None = Field(None, ge=0, le=8192)
    top_k: int | None = Field(None, ge=1, le=100)
    document_ids: list[NonEmptyText] | None = Field(None, min_length=1, max_length=10_000)


class ChatRequest(BaseModel):
    """A question: the last user message. Unknown fields are ignored, unsupported ones refused."""

    messages: list[Message] = Field(min_length=1, max_length=1024)
    model: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(0.0, ge=0, le=2, description="0 by default: answers about documents should repeat.")
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=-INT64, lt=INT64)
    stop: NonEmptyText | Annotated[list[NonEmptyText], Field(max_length=16)] | None = None
    n: Literal[1] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: TextFormat | None = None
    logprobs: Literal[False] | None = None
    tools: list[FileSearch] | None = Field(None, max_length=1, description="file_search only.")
    kvfuse: KvfuseOptions = KvfuseOptions()

    @model_validator(mode="after")
    def _ends_with_a_question(self) -> "ChatRequest":
        if self.messages[-1].role != "user":
            raise ValueError("the last message must be from the user: it is the question")
        if not self.messages[-1].text.strip():
            raise ValueError("the question (the last message) is empty")
        return self

    @property
    def scopes(self) -> list[Scope]:
        """Each narrows what the question is asked of."""
        return [scope for scope in (self.kvfuse, *(self.tools or ())) if scope.vector_store_ids is not None]

    def to_answer_request(self, request_id: str, document_ids: Collection[str] | None) -> AnswerRequest:
        """The request in the service's terms, about these documents or all."""
        return AnswerRequest(
            messages=tuple(_chat_message(message) for message in self.messages),
            model=self.model,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            policy=self.kvfuse.policy,
            boundary_tokens=self.kvfuse.boundary_tokens,
            top_k=self.kvfuse.top_k or (self.tools[0].max_num_results if self.tools else None),
            document_ids=None if document_ids is None else tuple(document_ids),
            request_id=request_id,
            fuse=self.kvfuse.fuse,
            budget=self.kvfuse.budget,
        )


def _chat_message(message: Message) -> ChatMessage:
    return ChatMessage(role="system" if message.role == "developer" else message.role, content=message.text)
