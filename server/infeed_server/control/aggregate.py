"""Health and metrics of several server processes, merged."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from infeed_server.control.health import SHUTTING_DOWN, Readiness

_RESPONSE_TIMEOUT_SECONDS = 1.0
"""Bound on one request. A slower process counts as not ready."""

_EXIT_SECONDS = 0.1
"""Time after which the exit of a process that no longer answers is known."""

_NO_ANSWER: dict[str, Any] = {"ready": False, "reason": "it does not answer"}

Addresses = Callable[[], list[str | None]]
"""Returns the control plane's address of each process, None for one that does not serve."""


class MergedHealth:
    """The health of all processes as of the last `update`.

    The server is ready when at least one process serves and each that serves is ready; a pipeline,
    when it is ready in each of them. A process that has exited gets no connections until it serves
    again, and is only named. One that hangs still gets some, so it makes the server unready until
    it is killed (`hung`).
    """

    def __init__(
        self, addresses: Addresses, token: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`token` is what the processes' control planes require."""
        self._addresses = addresses
        self._token = token
        self._clock = clock
        self._silent_since: dict[int, float] = {}
        """When each process that does not answer, by its number, was first found silent."""
        self.overall = Readiness(False, "no process serves yet")
        self.parts: dict[str, Readiness] = {}

    def update(self) -> None:
        """Requests `/readyz` of every process."""
        addresses = self._addresses()
        responses = self._get_responses(addresses)
        pipelines: dict[str, Readiness] = {}
        for number, response in responses.items():
            for name, pipeline in response.get("pipelines", {}).items():
                if name not in pipelines or not pipeline["ready"]:
                    reason = f"process {number}: {pipeline['reason']}"
                    pipelines[name] = Readiness(pipeline["ready"], reason)
        self.parts = dict(sorted(pipelines.items()))
        unready = [
            f"process {number}: {response['reason']}"
            for number, response in responses.items()
            if not response["ready"]
        ]
        count = len(addresses)
        exited = [str(number) for number in range(count) if number not in responses]
        restarting = f"; restarting: process {', '.join(exited)}" if exited else ""
        if not responses:
            self.overall = Readiness(False, f"none of {count} processes serves")
        elif unready:
            reason = f"{len(unready)} of {count} not ready: {'; '.join(unready)}{restarting}"
            self.overall = Readiness(False, reason)
        else:
            states = "; ".join(dict.fromkeys(each["reason"] for each in responses.values()))
            reason = f"{states}, in {len(responses)} of {count} processes{restarting}"
            self.overall = Readiness(True, reason)

    def hung(self, seconds: float) -> list[int]:
        """Returns the numbers of the processes that have not answered for so long."""
        end = self._clock() - seconds
        return [number for number, since in self._silent_since.items() if since <= end]

    def drain(self) -> None:
        """Makes the server and its pipelines unready, until the next `update`."""
        self.overall = Readiness(False, SHUTTING_DOWN)
        self.parts = dict.fromkeys(self.parts, self.overall)

    def _get_responses(self, addresses: list[str | None]) -> dict[int, dict[str, Any]]:
        """Returns the response of each process that serves."""
        serving = {n: address for n, address in enumerate(addresses) if address is not None}
        bodies = _get_all(list(serving.values()), "/readyz", self._token)
        answered_at = self._clock()  # not before: both ends may have been stopped meanwhile
        responses: dict[int, dict[str, Any] | None] = {
            number: _document(body) for number, body in zip(serving, bodies, strict=True)
        }
        if not all(responses.values()):
            # A process that is killed closes its sockets a moment before its exit is known.
            time.sleep(_EXIT_SECONDS)
            now = self._addresses()
            responses = {n: each for n, each in responses.items() if each or now[n]}
        self._silent_since = {
            number: self._silent_since.get(number, answered_at)
            for number, response in responses.items()
            if not response
        }
        return {n: each or _NO_ANSWER for n, each in responses.items()}


class MergedMetrics(Collector):
    """The metrics of all processes, with the label `process` for the process's number."""

    def __init__(
        self, addresses: Addresses, left_out: Collection[str] = (), token: str = ""
    ) -> None:
        """`left_out` names the families that no process can know."""
        self._addresses = addresses
        self._token = token
        self._left_out = left_out

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        serving = {n: address for n, address in enumerate(self._addresses()) if address is not None}
        bodies = _get_all(list(serving.values()), "/metrics", self._token)
        for number, body in zip(serving, bodies, strict=True):
            for family in text_string_to_metric_families(body or ""):
                if family.name in self._left_out:
                    continue
                metric = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, "process": str(number)}
                    metric.samples.append(sample._replace(labels=labels))
        return merged.values()

    def describe(self) -> Iterable[Metric]:
        return ()  # the metrics are known only at a scrape


def fetch_documents(addresses: Addresses, token: str, path: str) -> list[dict[str, Any]]:
    """Returns the JSON document at a path from each process that answers."""
    bodies = _get_all([address for address in addresses() if address is not None], path, token)
    documents = map(_document, bodies)
    return [each for each in documents if each is not None]


def _document(body: str | None) -> dict[str, Any] | None:
    """Returns the JSON object of a body; None for another one, as of an internal error."""
    try:
        document = json.loads(body or "")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _get_all(addresses: list[str], path: str, token: str) -> list[str | None]:
    """Returns the body from each address, requested at once: one that hangs costs one time-out."""
    if not addresses:
        return []
    with ThreadPoolExecutor(len(addresses)) as threads:
        return list(threads.map(lambda address: _get(address, path, token), addresses))


def _get(address: str, path: str, token: str) -> str | None:
    """Returns the body of the response; None without one, or for an error.

    503 is no error: `/readyz` of a process that is not ready.
    """
    connection = http.client.HTTPConnection(address, timeout=_RESPONSE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
        response = connection.getresponse()
        body = response.read().decode()
        return body if response.status in (200, 503) else None
    except (OSError, http.client.HTTPException, UnicodeDecodeError):
        return None
    finally:
        connection.close()
