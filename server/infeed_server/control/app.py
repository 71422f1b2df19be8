"""The control plane's HTTP app: `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from infeed_server.control.health import Readiness

ENDPOINTS = {
    "/livez": "200 while the process serves",
    "/readyz": "200 when every part is ready, else 503, with the reasons",
    "/metrics": "metrics for Prometheus",
}


class ShownHealth(Protocol):
    """What `/readyz` shows: `control.health.Health`, or that of several processes."""

    @property
    def overall(self) -> Readiness:
        """What holds for the server as a whole."""

    @property
    def parts(self) -> Mapping[str, Readiness]:
        """What holds for each part of it, such as a pipeline, by name."""


class ShownMetrics(Protocol):
    """What `/metrics` shows."""

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Everything, in the form that an HTTP `Accept` header prefers, and its content type."""


@dataclass(frozen=True)
class ControlState:
    """What the endpoints show."""

    health: ShownHealth
    metrics: ShownMetrics
    version: str
    parts: str = "pipelines"
    """What the parts are called that are ready or not."""


def create_app(state: ControlState) -> Starlette:
    """The app that shows a server's state. It only reads, so it needs no guard but its address."""

    # These run on the event loop itself: none of them waits, and a pool of threads would only
    # have to be ended too.
    async def index(_: Request) -> Response:
        return JSONResponse({"server": "infeed", "version": state.version, "endpoints": ENDPOINTS})

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        return _readiness(state)

    async def metrics(request: Request) -> Response:
        body, content_type = state.metrics.expose(request.headers.get("accept", ""))
        # As a header and not as media_type: Starlette would add a second charset to the latter.
        return Response(body, headers={"content-type": content_type})

    async def not_found(request: Request, _: Exception) -> Response:
        message = f"no {request.url.path}; there is: {', '.join(['/', *ENDPOINTS])}"
        return JSONResponse({"error": message}, status_code=404)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
        ],
        exception_handlers={404: not_found},
    )


def _readiness(state: ControlState) -> Response:
    overall = state.health.overall
    content = {
        "ready": overall.ready,
        "reason": overall.reason,
        state.parts: {
            name: {"ready": readiness.ready, "reason": readiness.reason}
            for name, readiness in state.health.parts.items()
        },
    }
    return JSONResponse(content, status_code=200 if overall.ready else 503)


__all__ = ["ENDPOINTS", "ControlState", "ShownHealth", "ShownMetrics", "create_app"]
