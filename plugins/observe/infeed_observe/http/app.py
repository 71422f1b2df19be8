"""The control plane's HTTP app: `/livez`, `/readyz`, `/metrics`, `/api/v1` and the dashboard.

docs/observability.md describes the documents of `/api/v1`. Slow answers are made on threads, so
that probes do not wait.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from infeed.shared.errors import InfeedError, InvalidRequestError, PipelineNotFoundError
from infeed_observe.http.access import AccessCheck, Authorize, is_authorized
from infeed_observe.http.dashboard import dashboard_routes, page
from infeed_observe.preview import BusyError, Previews
from infeed_observe.views import Document
from infeed_server.serving.health import Readiness

_STATUS_CODES: Mapping[type[InfeedError], int] = {
    InvalidRequestError: 400,
    PipelineNotFoundError: 404,
}
"""Status codes by error; others get 503."""


class HealthView(Protocol):
    """The health of a server, of its processes, or of a role."""

    @property
    def overall(self) -> Readiness:
        """Readiness of the server as a whole."""

    @property
    def parts(self) -> Mapping[str, Readiness]:
        """Readiness of each part, such as a pipeline, by name."""


class StatusView(Protocol):
    """What `/api/v1` shows of a server."""

    def to_json(self, readiness: Mapping[str, Readiness]) -> Document:
        """Returns the status. `readiness` is by pipeline, with the server's under ""."""

    def bad_samples(self, pipeline: str) -> list[Document] | None:
        """Returns the last bad samples of a pipeline; None if it does not exist."""


@dataclass(frozen=True)
class ControlState:
    """The state that the endpoints show."""

    health: HealthView
    registry: CollectorRegistry
    """The metrics."""
    version: str
    parts: str = "pipelines"
    """The JSON key of the parts in `/readyz`."""
    status: StatusView | None = None
    """The source of `/api/v1` and the dashboard; None leaves both out."""
    previews: Previews | None = None
    """The source of previews; None leaves them out."""


def create_app(
    state: ControlState,
    host_names: Collection[str] | None = None,
    authorize: Authorize | None = None,
) -> Starlette:
    """Returns the app that shows a server's state, read-only. Requests must be for an address or
    one of `host_names`, or any host if it is None. With `authorize`, all except those for health
    need a token."""
    status, previews = state.status, state.previews

    async def root(request: Request) -> Response:
        if status and "text/html" in request.headers.get("accept", ""):
            return page()
        return _json(overview, vary="accept")

    async def index(_: Request) -> Response:
        return _json(overview)

    async def livez(_: Request) -> Response:
        return _json({"status": "ok"})

    async def readyz(request: Request) -> Response:
        overall = state.health.overall
        content: dict[str, object] = {"ready": overall.ready}
        if is_authorized(request):
            content["reason"] = overall.reason
            parts = state.health.parts.items()
            content[state.parts] = {name: asdict(readiness) for name, readiness in parts}
        return _json(content, 200 if overall.ready else 503)

    def metrics(request: Request) -> Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a malformed version deserves no error 500
            encode, content_type = choose_encoder("")
        # Not `media_type`, to which Starlette would add a second charset.
        return Response(encode(state.registry), headers={"content-type": content_type})

    def show_status(_: Request) -> Response:
        assert status is not None
        return _json(status.to_json({"": state.health.overall, **state.health.parts}))

    def show_bad_samples(request: Request) -> Response:
        assert status is not None
        name = request.path_params["name"]
        samples = status.bad_samples(name)
        if samples is None:
            raise PipelineNotFoundError(
                f"there is no pipeline {name!r}; /api/v1/status lists the pipelines"
            )
        return _json({"pipeline": name, "samples": samples})

    async def not_found(request: Request, _: Exception) -> Response:
        paths = ", ".join(["/", *endpoints])
        return _json({"error": f"no {request.url.path}; available: {paths}"}, 404)

    async def not_allowed(request: Request, error: Any) -> Response:
        problem = f"{request.method} {request.url.path}: this server is read-only; use GET"
        return _json({"error": problem}, 405, **(error.headers or {}))

    async def busy(_: Request, __: Exception) -> Response:
        problem = "previews are made one at a time, at most one every two seconds; try again"
        return _json({"error": problem}, 429, **{"retry-after": "2"})

    async def failed(_: Request, error: Any) -> Response:
        return _json({"error": error.message}, _STATUS_CODES.get(type(error), 503))

    shown: dict[str, tuple[Any, str]] = {
        "/livez": (livez, "200 while the process serves"),
        "/readyz": (readyz, "200 when every part is ready, else 503, with the reasons"),
        "/metrics": (metrics, "metrics for Prometheus"),
    }
    if status:
        text = "the server, its pipelines and their trainers, with verdicts"
        shown["/api/v1/status"] = (show_status, text)
        bad_samples = "/api/v1/pipelines/NAME/bad-samples"
        shown[bad_samples] = (show_bad_samples, "the last bad samples of a pipeline")
    if previews:
        text = "a few samples from `position`, as pictures"
        shown["/api/v1/pipelines/NAME/preview"] = (partial(_preview, previews), text)
    endpoints = {path: text for path, (_, text) in shown.items()}
    overview = {"server": "infeed", "version": state.version, "endpoints": endpoints}
    routes: list[BaseRoute] = [
        Route("/", root),
        Route("/api/v1", index),
        # A name may have slashes.
        *(Route(path.replace("NAME", "{name:path}"), show) for path, (show, _) in shown.items()),
        *([dashboard_routes()] if status else []),
    ]
    handlers: Any = {404: not_found, 405: not_allowed, BusyError: busy, InfeedError: failed}
    access = Middleware(AccessCheck, names=host_names, authorize=authorize)
    return Starlette(routes=routes, exception_handlers=handlers, middleware=[access])


def _preview(previews: Previews, request: Request) -> Response:
    text = request.query_params.get("position", "0")
    try:
        position = int(text)
    except ValueError:
        raise InvalidRequestError(f"position={text!r:.50} must be a number") from None
    return _json(previews.make(request.path_params["name"], position))


def _json(content: Any, status: int = 200, **headers: str) -> Response:
    """Returns JSON that is not cached, in ASCII because file names may be invalid Unicode."""
    headers = {"cache-control": "no-store", **headers}
    return Response(json.dumps(content, allow_nan=False), status, headers, "application/json")
