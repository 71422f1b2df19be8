"""Health and metrics of several server processes, merged."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from infeed_server.control.health import Readiness

_RESPONSE_TIMEOUT_SECONDS = 1.0
"""Bound on one request. A slower process counts as not ready."""

Addresses = Callable[[], list[str | None]]
"""Returns the control plane's address of each process, None for one that does not serve."""


class MergedHealth:
    """The health of all processes as of the last `update`.

    The server is ready when every process is; a pipeline, when it is ready in every process.
    """

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self.overall = Readiness(False, "no process serves yet")
        self.parts: dict[str, Readiness] = {}

    def update(self) -> None:
        """Requests `/readyz` of every process."""
        responses = [_get_readiness(address) for address in self._addresses()]
        pipelines: dict[str, Readiness] = {}
        for number, response in enumerate(responses):
            for name, pipeline in response.get("pipelines", {}).items():
                if name not in pipelines or not pipeline["ready"]:
                    reason = f"process {number}: {pipeline['reason']}"
                    pipelines[name] = Readiness(pipeline["ready"], reason)
        self.parts = dict(sorted(pipelines.items()))
        unready = [
            f"process {number}: {response['reason']}"
            for number, response in enumerate(responses)
            if not response["ready"]
        ]
        count = len(responses)
        self.overall = (
            Readiness(False, f"{len(unready)} of {count} not ready: {'; '.join(unready)}")
            if unready
            else Readiness(True, f"every pipeline is ready in {count} processes")
        )


class MergedMetrics(Collector):
    """The metrics of all processes, with the label `process` for the process's number."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for number, address in enumerate(self._addresses()):
            body = (address and _get(address, "/metrics")) or ""
            for family in text_string_to_metric_families(body):
                metric = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, "process": str(number)}
                    metric.samples.append(sample._replace(labels=labels))
        return merged.values()

    def describe(self) -> Iterable[Metric]:
        return ()  # the metrics are known only at a scrape


def _get_readiness(address: str | None) -> dict[str, Any]:
    body = address and _get(address, "/readyz")
    if not body:
        return {"ready": False, "reason": "it does not answer"}
    response: dict[str, Any] = json.loads(body)
    return response


def _get(address: str, path: str) -> str | None:
    """Returns the body of the response, whatever its status; None without a response."""
    connection = http.client.HTTPConnection(address, timeout=_RESPONSE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
