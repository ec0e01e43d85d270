"""API keys: Bearer tokens that open /v1 and nothing else."""

import hashlib
import hmac
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Unauthorized

GUARDED = "/v1"


class BearerAuth:
    """Refuses requests under /v1 that carry none of the keys, before their body is read. No keys: open to all."""

    def __init__(self, app: ASGIApp, keys: Sequence[SecretStr]) -> None:
        self._app = app
        self._digests = [_digest(key.get_secret_value()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._digests and scope["type"] == "http" and _is_guarded(scope["path"]):
            self._check(Headers(scope=scope).get("authorization", ""))
        await self._app(scope, receive, send)

    def _check(self, authorization: str) -> None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized(
                "An API key is needed: send the header 'Authorization: Bearer KEY'", code="missing_api_key"
            )
        digest = _digest(token.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # all of them: no early exit
        if not any(matches):
            raise Unauthorized("The API key is not valid")


def _is_guarded(path: str) -> bool:
    return path == GUARDED or path.startswith(f"{GUARDED}/")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
