"""Peers: other servers' control planes, whose dashboards may read this one's API and vice versa."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infeed.shared.errors import ConfigError


def parse_peers(values: Iterable[str]) -> tuple[str, ...]:
    """Returns the origins `http://host:port` of the option `--http-peer`, each once.

    A value without a scheme has http. Raises `ConfigError` for anything else than an origin: the
    text becomes part of headers.
    """
    return tuple(dict.fromkeys(map(_parse, values)))


def _parse(value: str) -> str:
    text = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise _wrong(value, str(problem)) from None
    if parts.scheme not in ("http", "https"):
        raise _wrong(value, f"its scheme is {parts.scheme!r}")
    if not parts.hostname or not _is_host(parts.hostname):
        raise _wrong(value, "it has no valid host")
    if parts.username is not None or parts.query or parts.fragment or parts.path not in ("", "/"):
        raise _wrong(value, "it has more than a scheme, a host and a port")
    # As a browser writes an origin.
    return f"{parts.scheme}://{_host(parts)}{_port_suffix(parts.scheme, port)}"


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").lower()
    return f"[{host}]" if ":" in host else host


def _port_suffix(scheme: str, port: int | None) -> str:
    default = {"http": 80, "https": 443}[scheme]
    return "" if port in (None, default) else f":{port}"


def _is_host(host: str) -> bool:
    return host.isascii() and all(each.isalnum() or each in ".-_:" for each in host)


def _wrong(value: str, problem: str) -> ConfigError:
    return ConfigError(
        f"--http-peer {value!r}: {problem}; it must be the address of another server's control "
        "plane, such as http://host-b:7471",
        address=value,
    )


class PeerAccess:
    """Lets the pages of peers, and of no other origin, read the API with a GET (CORS)."""

    def __init__(self, app: ASGIApp, peers: Sequence[str]) -> None:
        self._app = app
        self._peers = frozenset(peers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        origin = Headers(scope=scope).get("origin", "")

        async def send_with_origin(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.append("vary", "origin")
                if origin in self._peers:
                    headers["access-control-allow-origin"] = origin
            await send(message)

        await self._app(scope, receive, send_with_origin)
