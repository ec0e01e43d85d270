"""Errors a caller may see, each with its HTTP status and OpenAI error code."""

from collections.abc import Mapping
from typing import ClassVar


class AppError(Exception):
    """An error with a message fit for the caller.

    Attributes:
        status: HTTP status.
        type: OpenAI error type, e.g. ``invalid_request_error``.
        code: stable machine-readable code.
        param: name of the request field at fault, if one is.
        headers: HTTP headers that belong to the answer.
        message: one sentence for a person; names the thing and the limit.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str] = "internal_error"
    headers: ClassVar[Mapping[str, str]] = {}

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.default_code


class InvalidRequest(AppError, ValueError):
    """The request cannot be served as it stands."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_request"


class ContextTooLong(InvalidRequest):
    """The question and its answer do not fit the model's context."""

    default_code = "context_length_exceeded"


class Unauthorized(AppError, PermissionError):
    """No valid API key came with the request."""

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"
    headers = {"WWW-Authenticate": "Bearer"}  # noqa: RUF012


class NotFound(AppError, LookupError):
    """A named thing does not exist."""

    status = 404
    type = "invalid_request_error"
    default_code = "not_found"


class MethodNotAllowed(AppError):
    """The path exists, the method does not."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class TooLarge(AppError, ValueError):
    """The request body is over its size limit."""

    status = 413
    type = "invalid_request_error"
    default_code = "request_too_large"


class NotReady(AppError, ConnectionError):
    """The engine does not answer (yet)."""

    status = 503
    type = "server_error"
    default_code = "not_ready"
    headers = {"Retry-After": "5"}  # noqa: RUF012


class RequestTimeout(AppError, TimeoutError):
    """The answer took longer than the service allows."""

    status = 504
    type = "server_error"
    default_code = "request_timeout"


class ConfigError(AppError, ValueError):
    """A setting is missing, unknown or out of its limits."""

    default_code = "invalid_settings"
