"""The control planes of several server processes, shown as one."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from infeed_server.control.health import Readiness

_SECONDS = 1.0
"""What one process gets to answer: it is on the same machine and only reads."""

Addresses = Callable[[], list[str | None]]
"""Where each process's control plane answers, by its number; None where it does not."""


class MergedHealth:
    """Ready when every process is; a pipeline, when it is everywhere. As of the last `update`."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self.overall = Readiness(False, "no process serves yet")
        self.parts: dict[str, Readiness] = {}

    def update(self) -> None:
        """Asks every process."""
        answers = [_readiness(address) for address in self._addresses()]
        pipelines: dict[str, Readiness] = {}
        for number, answer in enumerate(answers):
            for name, told in answer.get("pipelines", {}).items():
                if name not in pipelines or not told["ready"]:
                    reason = f"process {number}: {told['reason']}"
                    pipelines[name] = Readiness(told["ready"], reason)
        self.parts = dict(sorted(pipelines.items()))
        waiting = [
            f"process {number}: {answer['reason']}"
            for number, answer in enumerate(answers)
            if not answer["ready"]
        ]
        count = len(answers)
        self.overall = (
            Readiness(False, f"{len(waiting)} of {count} not ready: {'; '.join(waiting)}")
            if waiting
            else Readiness(True, f"every pipeline is ready in {count} processes")
        )


def _readiness(address: str | None) -> dict[str, Any]:
    """What a process's `/readyz` says."""
    body = address and _get(address, "/readyz")
    if not body:
        return {"ready": False, "reason": "it does not answer"}
    told: dict[str, Any] = json.loads(body)
    return told


class MergedMetrics:
    """Every process's metrics, each with a label `process` that holds its number."""

    def __init__(self, addresses: Addresses) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Processes(addresses))

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Processes(Collector):
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
        return ()  # what there is, only a scrape tells


def _get(address: str, path: str) -> str | None:
    """The answer's body, whatever its status; None when there is none."""
    connection = http.client.HTTPConnection(address, timeout=_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


__all__ = ["MergedHealth", "MergedMetrics"]
