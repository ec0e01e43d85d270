"""Errors as HTTP responses: OpenAI's body for everything, details of our own failures in the log only."""

import logging
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from app.errors import AppError, InvalidRequest, MethodNotAllowed, NotFound
from app.schemas.errors import ErrorBody, ErrorDetail

logger = logging.getLogger(__name__)


def as_app_error(error: Exception) -> AppError:
    """What to tell the caller about any exception; unexpected ones are logged and told nothing about."""
    if isinstance(error, AppError):
        return error
    if isinstance(error, RequestValidationError):
        return _from_validation(error)
    if isinstance(error, HTTPException):
        return _from_http(error)
    logger.error("internal error", exc_info=error)
    return AppError("The service failed on this request; its log has the details.")


def error_body(error: AppError) -> ErrorBody:
    """The error in OpenAI's shape."""
    return ErrorBody(error=ErrorDetail(message=error.message, type=error.type, param=error.param, code=error.code))


def error_response(error: Exception) -> JSONResponse:
    """The response to an exception."""
    told = as_app_error(error)
    headers = dict(told.headers) | dict((error.headers if isinstance(error, HTTPException) else None) or {})
    return JSONResponse(error_body(told).model_dump(), told.status, headers)


async def handle_error(request: Request, error: Exception) -> JSONResponse:
    """Exception handler for the application."""
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        error.detail = f"{HTTPStatus(error.status_code).phrase}: {request.method} {request.url.path}"
    return error_response(error)


def _from_http(error: HTTPException) -> AppError:
    if isinstance(error.__cause__, AppError):  # the framework wraps what a failing body read raised
        return error.__cause__
    kinds: dict[int, type[AppError]] = {404: NotFound, 405: MethodNotAllowed}
    return kinds.get(error.status_code, InvalidRequest)(str(error.detail))


def _from_validation(error: RequestValidationError) -> AppError:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"][1:] if not _is_union_tag(part)]
    param = ".".join(path) or None
    message = first["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{param}: {message}" if param else message, param=param)


def _is_union_tag(part: object) -> bool:
    return isinstance(part, str) and (part == "str" or "[" in part)
