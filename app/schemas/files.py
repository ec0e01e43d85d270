"""OpenAI's file objects, with the progress of ours."""

from typing import Literal, Self

from pydantic import BaseModel

from app.service_api import FileView


class FileProgress(BaseModel):
    """How far a document is: passages cut, passages whose K/V is stored, tokens in all; the file it will replace."""

    passages: int
    passages_done: int
    tokens: int
    sha256: str
    replaces: str | None


class FileObject(BaseModel):
    """One uploaded document."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: Literal["assistants"] = "assistants"
    status: str
    status_details: str | None
    kvfuse: FileProgress

    @classmethod
    def of(cls, view: FileView) -> Self:
        """The API's view of a file."""
        progress = FileProgress(
            passages=view.passages,
            passages_done=view.passages_done,
            tokens=view.tokens,
            sha256=view.sha256,
            replaces=view.replaces,
        )
        return cls(
            id=view.id,
            bytes=view.bytes,
            created_at=view.created_at,
            filename=view.filename,
            status=view.status,
            status_details=view.status_details,
            kvfuse=progress,
        )


class FileList(BaseModel):
    """Every uploaded document, newest first."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    has_more: Literal[False] = False


class FileDeleted(BaseModel):
    """Confirmation that a document is gone."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True
