"""OpenAI's error body."""

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """What went wrong: a sentence, a kind, the field at fault and a stable code."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    """Body of every answer that is not a success."""

    error: ErrorDetail
