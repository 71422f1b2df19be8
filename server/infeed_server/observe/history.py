"""History: rates and waits of each pipeline, one point a second, for ten minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

MAX_POINTS = 600

Point = Mapping[str, float | None]


class History:
    """Keeps the last points of each pipeline. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, Mapping[str, Point]]] = deque(maxlen=MAX_POINTS)

    def add(self, at: float, pipelines: Mapping[str, Point]) -> None:
        """Adds a point: values by pipeline and name, at a Unix time. Drops later ones, for the
        clock was set back."""
        while self._points and self._points[-1][0] >= at:
            self._points.pop()
        self._points.append((at, pipelines))

    def to_json(self, seconds: float = MAX_POINTS) -> dict[str, Any]:
        """Returns the points of the last seconds as columns, with None for a value that a point
        lacks: `at`, and by pipeline its values."""
        points = list(self._points)
        points = [point for point in points if point[0] >= points[-1][0] - seconds]
        columns = {(name, key) for _, named in points for name in named for key in named[name]}
        pipelines: dict[str, Any] = {name: {} for _, named in points for name in sorted(named)}
        for name, key in sorted(columns):
            pipelines[name][key] = [named.get(name, {}).get(key) for _, named in points]
        return {"at": [at for at, _ in points], "pipelines": pipelines}
