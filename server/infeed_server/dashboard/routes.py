"""The routes of the dashboard's files, with headers that keep the page to this server."""

from __future__ import annotations

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


_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "; ".join(
        (
            "default-src 'self'",
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


def dashboard_routes() -> list[Route]:
    """Returns the routes of the files that the page loads: `/dashboard/NAME`."""

    def route(path: Path) -> Route:
        response = _file_response(path)

        async def show(_: Request) -> Response:
            return response

        return Route(f"/dashboard/{path.name}", show)

    paths = sorted(_FOLDER.iterdir())
    return [route(path) for path in paths if path.suffix in _TYPES and path.name != "index.html"]


def page() -> Response:
    """Returns the page."""
    return _file_response(_FOLDER / "index.html")


def accepts_page(accept: str) -> bool:
    """Returns whether a request with this Accept header is a browser's, for a page.

    Programs send `*/*`, or name JSON first.
    """
    kinds = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    if "text/html" not in kinds:
        return False
    return "application/json" not in kinds[: kinds.index("text/html")]


def _file_response(path: Path) -> Response:
    headers = {"content-type": _TYPES[path.suffix], **_HEADERS}
    return Response(path.read_bytes(), headers=headers)
