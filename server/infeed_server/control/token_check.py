"""Check of the token of a request to the control plane."""

from __future__ import annotations

import base64
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from infeed.shared.errors import AuthenticationError, PermissionDeniedError

Authorize = Callable[[str | None], None]
"""Takes the value of an Authorization header, `Bearer TOKEN`, or None without one.

Raises `AuthenticationError` or `PermissionDeniedError`."""

_OPEN_PATHS = ("/livez", "/readyz")
"""Probes cannot send tokens. `/readyz` has its reasons only with a token."""

_CHALLENGES = (
    (b"www-authenticate", b'Basic realm="infeed", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="infeed"'),
)
"""A browser prompts for the first, where the password is the token and the name is ignored."""

_MISSING = (
    "this control plane requires a token: infeed top takes it from a file, --token-file FILE; "
    "other clients send the header 'Authorization: Bearer TOKEN'"
)
"""The remedies of trainers are not those of HTTP."""

_IS_AUTHORIZED = "infeed.is_authorized"
"""Key of a request's scope."""


class TokenCheck:
    """Answers requests without a valid token with 401, and those without access with 403."""

    def __init__(self, app: ASGIApp, authorize: Authorize) -> None:
        self._app = app
        self._authorize = authorize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(Headers(scope=scope).get("authorization"))
        if refusal is not None and scope["path"] not in _OPEN_PATHS:
            await refusal(scope, receive, send)
            return
        await self._app({**scope, _IS_AUTHORIZED: refusal is None}, receive, send)

    def _refusal(self, authorization: str | None) -> JSONResponse | None:
        """Returns the answer to a request with this header that is not allowed."""
        try:
            self._authorize(_as_bearer(authorization))
        except AuthenticationError as error:
            problem = _MISSING if authorization is None else error.message
            response = JSONResponse({"error": problem}, status_code=401)
            response.raw_headers.extend(_CHALLENGES)
            return response
        except PermissionDeniedError as error:
            return JSONResponse({"error": error.message}, status_code=403)
        return None


def is_authorized(request: HTTPConnection) -> bool:
    """Returns whether a request has a token; True if the server requires none."""
    return bool(request.scope.get(_IS_AUTHORIZED, True))


def _as_bearer(authorization: str | None) -> str | None:
    """Returns the header with the password of basic authentication as the token."""
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        decoded = base64.b64decode(credentials, validate=True).decode()
    except ValueError:  # also an invalid UTF-8 text
        return authorization
    return f"Bearer {decoded.partition(':')[2]}"
