"""The JSON API of the control plane, `/api/v1`; docs/observability.md describes its documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from infeed.shared.errors import InfeedError, InvalidRequestError, PipelineNotFoundError
from infeed_server.control.health import HealthView
from infeed_server.observe.preview import BusyError, Previews
from infeed_server.observe.status import Status
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


def api_routes(status: Status, health: HealthView) -> list[Route]:
    """Returns the routes of the API. Threads make the answers, so that probes do not wait."""

    def show_status(_: Request) -> Response:
        named = {"": health.overall, **health.parts}
        readiness = {name: (one.ready, one.reason) for name, one in named.items()}
        return _json(status.to_json(readiness))

    def show_history(request: Request) -> Response:
        text = request.query_params.get("seconds", str(MAX_HISTORY_SECONDS))
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= MAX_HISTORY_SECONDS:
            problem = f"seconds={text!r} must be a number above 0, at most {MAX_HISTORY_SECONDS}"
            return _json({"error": problem}, 400)
        return _json(status.history.to_json(seconds))

    def show_bad_samples(request: Request) -> Response:
        name = request.path_params["name"]
        samples = status.bad_samples(name)
        if samples is None:
            problem = f"there is no pipeline {name!r}; /api/v1/status lists the pipelines"
            return _json({"error": problem}, 404)
        return _json({"pipeline": name, "samples": samples})

    return [
        Route("/api/v1/status", show_status),
        Route("/api/v1/history", show_history),
        # A name may have slashes.
        Route("/api/v1/pipelines/{name:path}/bad-samples", show_bad_samples),
    ]


def preview_route(previews: Previews) -> Route:
    """Returns the route of the previews. Threads make them, so that probes do not wait."""

    def show_preview(request: Request) -> Response:
        name, query = request.path_params["name"], request.query_params
        try:
            if "sample_id" in query:
                sample_id, key = _integer(query, "sample_id"), parse_key(query.get("key", "0" * 32))
                return _json(previews.make_sample(name, sample_id, key))
            stages = bool(_integer(query, "stages"))
            return _json(previews.make(name, _integer(query, "position"), stages=stages))
        except BusyError:
            problem = "one preview at a time, and one every other second"
            response = _json({"error": problem}, 429)
            response.headers["retry-after"] = "2"
            return response
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


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return _Json(document, status, headers={"cache-control": "no-store"})


class _Json(JSONResponse):
    """JSON of any text: the names of files may be no valid Unicode."""

    @override
    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
