"""The JSON API of the control plane, `/api/v1`; docs/api.md describes its documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from infeed.shared.errors import InfeedError, InvalidRequestError, PipelineNotFoundError
from infeed_server.control.calls import Calls
from infeed_server.control.health import HealthView
from infeed_server.observe.preview import BusyError, Previews
from infeed_server.pipeline.sample_key import parse_key

MAX_HISTORY_SECONDS = 600

API_ENDPOINTS = {
    "/api/v1/status": "the server, its pipelines and their trainers, with verdicts",
    "/api/v1/pipelines/NAME/bad-samples": "the last bad samples of a pipeline, at most 100",
    "/api/v1/history": "rates and waits of the last `seconds`, at most 600, one point a second",
}

PREVIEW_ENDPOINTS = {
    "/api/v1/pipelines/NAME/preview": "a few samples from `position`, with `stages=1` each "
    "transform of them, or one `sample_id` under a `key`",
}

_PREVIEW_ERRORS: Mapping[type[InfeedError], int] = {
    InvalidRequestError: 400,
    PipelineNotFoundError: 404,
}


class HistoryView(Protocol):
    """The points that `/api/v1/history` shows."""

    def to_json(self, seconds: float) -> dict[str, Any]:
        """Returns the last seconds as columns."""


class StatusView(Protocol):
    """The status that `/api/v1` shows. Its methods are called on any thread."""

    @property
    def history(self) -> HistoryView: ...

    def to_json(self, readiness: Mapping[str, tuple[bool, str]]) -> dict[str, Any]:
        """Returns the status; `readiness` is by pipeline, and under "" that of the server."""

    def bad_samples(self, pipeline: str) -> list[dict[str, Any]] | None:
        """Returns the last bad samples of a pipeline; None if there is no such pipeline."""


def api_routes(status: StatusView, health: HealthView, calls: Calls) -> list[Route]:
    """Returns the routes of the API."""

    async def show_status(_: Request) -> Response:
        return await calls.run("status", lambda: _json(status.to_json(readiness_by_name(health))))

    async def show_history(request: Request) -> Response:
        text = request.query_params.get("seconds", str(MAX_HISTORY_SECONDS))
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= MAX_HISTORY_SECONDS:
            problem = f"seconds={text!r} must be a number above 0, at most {MAX_HISTORY_SECONDS}"
            return JSONResponse({"error": problem}, status_code=400)
        return await calls.run("history", lambda: _json(status.history.to_json(seconds)))

    async def show_bad_samples(request: Request) -> Response:
        name = request.path_params["name"]
        samples = await calls.run("bad samples", status.bad_samples, name)
        if samples is None:
            problem = f"there is no pipeline {name!r}; /api/v1/status has those that there are"
            return JSONResponse({"error": problem}, status_code=404)
        return _json({"pipeline": name, "samples": samples})

    return [
        Route("/api/v1/status", show_status),
        Route("/api/v1/history", show_history),
        # A name may have slashes.
        Route("/api/v1/pipelines/{name:path}/bad-samples", show_bad_samples),
    ]


def preview_route(previews: Previews) -> Route:
    """Returns the route of the previews."""

    async def show_preview(request: Request) -> Response:
        name, query = request.path_params["name"], request.query_params
        try:
            if "sample_id" in query:
                sample_id, key = _integer(query, "sample_id"), parse_key(query.get("key", "0" * 32))
                return _json(await previews.make_sample(name, sample_id, key))
            stages = bool(_integer(query, "stages"))
            return _json(await previews.make(name, _integer(query, "position"), stages=stages))
        except BusyError:
            problem = "one preview at a time, and one every other second"
            return JSONResponse({"error": problem}, status_code=429, headers={"retry-after": "2"})
        except InfeedError as error:
            status = _PREVIEW_ERRORS.get(type(error), 503)
            return _json({"error": error.message}, status)
        except ValueError as problem:
            return _json({"error": str(problem)}, 400)

    return Route("/api/v1/pipelines/{name:path}/preview", show_preview)


def _integer(query: QueryParams, name: str) -> int:
    """Returns a number of a query, 0 without it. Raises `ValueError`."""
    text = query.get(name, "0")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} must be an integer") from None


def readiness_by_name(health: HealthView) -> dict[str, tuple[bool, str]]:
    """Returns by pipeline, and under "" for the server, whether it is ready, and why."""
    named = {"": health.overall, **health.parts}
    return {name: (each.ready, each.reason) for name, each in named.items()}


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return _Json(document, status, headers={"cache-control": "no-store"})


class _Json(JSONResponse):
    """JSON of any text: the names of files may be no valid Unicode."""

    @override
    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
