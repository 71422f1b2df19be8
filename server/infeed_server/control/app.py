"""The control plane's HTTP app: `/livez`, `/readyz`, `/metrics`, `/api/v1` and the dashboard."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from infeed_server.control.access import AccessCheck, Authorize, is_authorized
from infeed_server.control.api import (
    API_ENDPOINTS,
    PREVIEW_ENDPOINTS,
    api_routes,
    preview_route,
)
from infeed_server.control.health import HealthView
from infeed_server.dashboard.routes import accepts_page, dashboard_routes, page
from infeed_server.observe.preview import Previews
from infeed_server.observe.status import Status

ENDPOINTS = {
    "/livez": "200 while the process serves",
    "/readyz": "200 when every part is ready, else 503, with the reasons",
    "/metrics": "metrics for Prometheus",
}


@dataclass(frozen=True)
class ControlState:
    """The state that the endpoints show."""

    health: HealthView
    registry: CollectorRegistry
    """The metrics."""
    version: str
    parts: str = "pipelines"
    """The JSON key of the parts of `/readyz`."""
    status: Status | None = None
    """What `/api/v1` and the dashboard show; None: there is no status and no dashboard."""
    previews: Previews | None = None
    """What makes previews; None: there are none."""


def create_app(
    state: ControlState,
    host_names: Collection[str] | None = None,
    authorize: Authorize | None = None,
) -> Starlette:
    """Returns the app that shows a server's state. Nothing can be changed there.

    Requests must be for an address or one of `host_names`; None: for any host. With `authorize`,
    they need a token, except for health.
    """
    endpoints = {
        **ENDPOINTS,
        **(API_ENDPOINTS if state.status else {}),
        **(PREVIEW_ENDPOINTS if state.previews else {}),
    }
    overview = {"server": "infeed", "version": state.version, "endpoints": endpoints}

    async def root(request: Request) -> Response:
        if state.status and accepts_page(request.headers.get("accept", "")):
            return page()
        return JSONResponse(overview, headers={"vary": "accept"})

    async def index(_: Request) -> Response:
        return JSONResponse(overview)

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        overall = state.health.overall
        content: dict[str, object] = {"ready": overall.ready}
        if is_authorized(request):
            content["reason"] = overall.reason
            content[state.parts] = {
                name: asdict(readiness) for name, readiness in state.health.parts.items()
            }
        return JSONResponse(content, status_code=200 if overall.ready else 503)

    async def metrics(request: Request) -> Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a malformed version; not a reason for an error 500
            encode, content_type = choose_encoder("")
        # Not as media_type: Starlette would add a second charset to it.
        body = await run_in_threadpool(encode, state.registry)
        return Response(body, headers={"content-type": content_type})

    async def not_found(request: Request, _: Exception) -> Response:
        message = f"no {request.url.path}; there is: {', '.join(['/', *endpoints])}"
        return JSONResponse({"error": message}, status_code=404)

    async def not_allowed(request: Request, error: Exception) -> Response:
        message = f"no {request.method} of {request.url.path}: nothing can be changed here; use GET"
        headers = getattr(error, "headers", None)
        return JSONResponse({"error": message}, status_code=405, headers=headers)

    routes = [
        Route("/", root),
        Route("/api/v1", index),
        Route("/livez", livez),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]
    if state.status is not None:
        routes += [*api_routes(state.status, state.health), *dashboard_routes()]
    if state.previews is not None:
        routes.append(preview_route(state.previews))
    return Starlette(
        routes=routes,
        exception_handlers={404: not_found, 405: not_allowed},
        middleware=[Middleware(AccessCheck, names=host_names, authorize=authorize)],
    )
