"""Access to the control plane: the host name and the token of a request."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from infeed.shared.errors import AuthenticationError, PermissionDeniedError

Authorize = Callable[[str | None], None]
"""A check of an Authorization header's value, `Bearer TOKEN`, or None without a header.

Raises `AuthenticationError` or `PermissionDeniedError`."""

_OPEN_PATHS = ("/livez", "/readyz")
"""Paths without tokens, since probes cannot send any; `/readyz` gives reasons only with one."""

_CHALLENGES = ('Basic realm="infeed", charset="UTF-8"', 'Bearer realm="infeed"')
"""A browser prompts for the first: the password is the token, and the name is ignored."""

_MISSING = (
    "this control plane requires a token: give infeed top its file as --token-file FILE, or send "
    "the header 'Authorization: Bearer TOKEN' from other clients"
)
"""Not the authenticator's message: the remedies of trainers do not apply to HTTP."""

_UNKNOWN_HOST = "unknown host name: request an IP address, or add the name with --http-host"

_IS_AUTHORIZED = "infeed.is_authorized"
"""Key in a request's scope."""


class AccessCheck:
    """Answers requests for an unknown host name with 421, without a valid token with 401, and
    without access with 403.

    The check of the name stops web pages that make a browser send requests to this server (DNS
    rebinding): a page can resolve its own name to any address, but cannot use the address itself.
    """

    def __init__(
        self, app: ASGIApp, names: Collection[str] | None, authorize: Authorize | None
    ) -> None:
        """`names` None accepts every name; `authorize` None requires no token."""
        self._app = app
        self._names = None if names is None else {_normalize(name) for name in names}
        self._authorize = authorize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refusal = self._refusal(headers.get("authorization"))
            if not self._knows(headers.get("host", "")):
                answer = JSONResponse({"error": _UNKNOWN_HOST}, status_code=421)
            elif refusal is not None and scope["path"] not in _OPEN_PATHS:
                answer = refusal
            scope = {**scope, _IS_AUTHORIZED: refusal is None}
        await answer(scope, receive, send)

    def _knows(self, host: str) -> bool:
        """Returns whether a Host header has an address or a known name, or is absent (HTTP/1.0)."""
        before_port, colon, port = host.rpartition(":")
        name = before_port if colon and port.isdecimal() else host
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return self._names is None or not name or _normalize(name) in self._names
        return True

    def _refusal(self, authorization: str | None) -> JSONResponse | None:
        """Returns the answer that refuses a request with this header; None if it is allowed."""
        try:
            if self._authorize is not None:
                self._authorize(_as_bearer(authorization))
        except AuthenticationError as error:
            problem = _MISSING if authorization is None else error.message
            response = JSONResponse({"error": problem}, status_code=401)
            for challenge in _CHALLENGES:
                response.headers.append("www-authenticate", challenge)
            return response
        except PermissionDeniedError as error:
            return JSONResponse({"error": error.message}, status_code=403)
        return None


def is_authorized(request: HTTPConnection) -> bool:
    """Returns whether a request may see everything; always if the server requires no token."""
    return bool(request.scope.get(_IS_AUTHORIZED, True))


def _as_bearer(authorization: str | None) -> str | None:
    """Returns the header, with the password of basic authentication as a bearer token."""
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        return f"Bearer {base64.b64decode(credentials).decode().partition(':')[2]}"
    except ValueError:  # also invalid UTF-8
        return authorization


def _normalize(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()
