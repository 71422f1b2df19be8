"""Check of the Host header, against pages that make a browser ask this server (DNS rebinding)."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class HostCheck:
    """Answers requests for an unknown host name with 421.

    A page can let a name of its own resolve to any address, but not use the address itself.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {_normalize(name) for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._allows(Headers(scope=scope).get("host", "")):
            message = "unknown host name: request an address, or add the name with --http-host"
            await JSONResponse({"error": message}, status_code=421)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allows(self, host: str) -> bool:
        """Returns whether a header's value is an address, a known name or, in HTTP/1.0, absent."""
        before_port, colon, port = host.rpartition(":")
        name = before_port if colon and port.isdecimal() else host
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return not name or _normalize(name) in self._names
        return True


def _normalize(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()
