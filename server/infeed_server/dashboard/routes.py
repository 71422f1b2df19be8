"""The routes of the dashboard's files, with headers that keep the page to this server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER = Path(__file__).parent / "static"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def dashboard_routes(peers: Sequence[str] = ()) -> list[Route]:
    """Returns the routes of the files that the page loads: `/dashboard/NAME`.

    `peers` are the origins of other servers that the page may request.
    """
    files = {path.name: path for path in _FOLDER.iterdir() if path.suffix in _TYPES}
    responses = {name: _file_response(path, peers) for name, path in files.items()}

    def route(name: str) -> Route:
        async def show(_: Request) -> Response:
            return responses[name]

        return Route(f"/dashboard/{name}", show)

    return [route(name) for name in sorted(files) if name != "index.html"]


def page(peers: Sequence[str] = ()) -> Response:
    """Returns the page."""
    return _file_response(_FOLDER / "index.html", peers)


def accepts_page(accept: str) -> bool:
    """Returns whether a request with this Accept header is a browser's, for a page.

    Programs send `*/*`, or name JSON first.
    """
    kinds = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    if "text/html" not in kinds:
        return False
    return "application/json" not in kinds[: kinds.index("text/html")]


def _file_response(path: Path, peers: Sequence[str]) -> Response:
    headers = {
        "content-type": _TYPES[path.suffix],
        "cache-control": "no-cache",
        "content-security-policy": "; ".join(
            (
                "default-src 'self'",
                " ".join(("connect-src 'self'", *peers)),
                "img-src 'self' data:",  # previews
                "object-src 'none'",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            )
        ),
        "cross-origin-opener-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "vary": "accept",
        "x-content-type-options": "nosniff",
    }
    return Response(path.read_bytes(), headers=headers)
