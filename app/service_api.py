"""What the routers and the command line ask of the service: values and one protocol."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Protocol

from app.cache import Documents
from app.library import Library
from store.tiered import TieredStore


@dataclass(frozen=True)
class ChatMessage:
    """One turn of a conversation; role is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True)
class AnswerRequest:
    """One question with its conversation and options; None means the service's setting.

    `fuse` false answers with an ordinary prefill of the same prompt, to compare with.
    """

    messages: tuple[ChatMessage, ...]
    model: str | None
    max_tokens: int | None
    temperature: float
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    policy: str | None
    boundary_tokens: int | None
    top_k: int | None
    document_ids: tuple[str, ...] | None
    request_id: str
    fuse: bool = True
    budget: float | None = None


@dataclass(frozen=True)
class TextDelta:
    """The next piece of an answer."""

    text: str


@dataclass(frozen=True)
class AnswerDone:
    """The end of an answer.

    Attributes:
        finish_reason: ``stop`` or ``length``.
        cached_tokens: prompt tokens whose K/V was reused.
        kvfuse: JSON-ready account: ``selection`` (passages with file id, title, text, score),
            ``tokens`` (``reused``, ``recomputed``, ``computed``), ``timings_ms`` and ``policy``.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    kvfuse: dict[str, Any]


AnswerEvent = TextDelta | AnswerDone


@dataclass(frozen=True)
class FileView:
    """A document as its uploader sees it; ``created_at`` in seconds since the epoch, ``bytes`` as uploaded."""

    id: str
    filename: str
    bytes: int
    created_at: int
    status: str
    status_details: str | None
    passages: int
    tokens: int
    passages_done: int
    sha256: str
    replaces: str | None = None


class Service(Protocol):
    """Everything behind the HTTP layer. Methods run on one event loop and raise ``AppError`` for the caller."""

    model_name: str

    @property
    def store(self) -> TieredStore:
        """The store of this process; once started."""
        ...

    @property
    def catalog(self) -> Documents:
        """The documents; once started."""
        ...

    @property
    def library(self) -> Library:
        """Collections of documents, and searching without an answer."""
        ...

    async def start(self) -> None:
        """Load the engine and the retriever; called once, while the HTTP server already answers."""

    async def stop(self) -> None:
        """Finish or abandon running work and free the engine; called once, also after a failed start."""

    async def ready(self) -> bool:
        """Whether the engine answers."""
        ...

    def answer(self, request: AnswerRequest) -> AsyncGenerator[AnswerEvent, None]:
        """Stream text, then one ``AnswerDone``; closing the generator (or cancelling its task) ends the generation.

        Raises:
            AppError: before the first item for anything wrong with the request.
        """
        ...

    async def add_file(self, filename: str, content: bytes, replaces: str | None = None) -> FileView:
        """Take a document in and return at once; content already known gives the existing file.

        The file `replaces` answers until the new one is ready, and goes then; raises ``NotFound``.
        """
        ...

    async def retry_file(self, id: str) -> FileView:
        """Try a failed file again, any other stays as it is; raises ``NotFound``."""
        ...

    async def list_files(self) -> list[FileView]:
        """Every file, newest first."""
        ...

    async def get_file(self, id: str) -> FileView:
        """One file; raises ``NotFound``."""
        ...

    async def file_text(self, id: str) -> str:
        """The text that passages' offsets count in, empty before the file is parsed; raises ``NotFound``."""
        ...

    async def delete_file(self, id: str) -> None:
        """Remove a file with its passages and K/V; raises ``NotFound``."""

    async def doctor(self) -> dict[str, Any]:
        """Self-checks by name, JSON-ready."""
        ...
