"""The routes of the dashboard's files, with headers that restrict the page to this server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from typing_extensions import override

_FOLDER = Path(__file__).parent / "static"

_POLICY = (
    "default-src 'self'",
    "img-src 'self' data:",  # previews
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)

_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "; ".join(_POLICY),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept",
    "x-content-type-options": "nosniff",
}


class _Files(StaticFiles):
    @override
    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(_HEADERS)
        return response


def dashboard_routes() -> Mount:
    """Returns the routes of the files that the page loads, `/dashboard/NAME`."""
    return Mount("/dashboard", _Files(directory=_FOLDER))


def page() -> Response:
    return FileResponse(_FOLDER / "index.html", headers=_HEADERS)
