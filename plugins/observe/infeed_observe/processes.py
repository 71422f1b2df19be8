"""Processes of one server: their health, status and metrics, read over HTTP and merged."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from typing_extensions import override

from infeed_observe.desired_servers import DESIRED_SERVERS
from infeed_observe.http.app import ControlState
from infeed_observe.http.server import open_control_plane
from infeed_observe.merge import merge_bad_samples, merge_views
from infeed_observe.metrics import ReadMetric
from infeed_observe.status import Status
from infeed_observe.views import Document, ProcessView
from infeed_server.runtime.instruments import ParentInstrument, ProcessFacts
from infeed_server.serving.health import SHUTTING_DOWN, Readiness
from infeed_server.version import VERSION

_RESPONSE_TIMEOUT_SECONDS = 2.0
"""Seconds: with fewer, a busy process counts as not ready; with more, a hung one delays the restart
of the others."""

_NO_ANSWER: Document = {"server": {"ready": False, "reason": "it does not answer"}}


class ServerProcesses(ParentInstrument, Collector):
    """Shows several processes as one server at `--http`, as at the last `update`; their metrics
    carry the label `process`.

    The server is ready if at least one process serves and all that serve are ready; a pipeline is
    ready if it is ready in all of them. An exited process gets no connections; a hung one still
    gets some, so it makes the server unready until it is killed (`hung`).
    """

    def __init__(self, facts: ProcessFacts, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `ConfigError` if the address cannot be used."""
        self._facts = facts
        self._clock = clock
        self._documents: dict[int, Document] = {}
        """The status of each process that answered, by the process's number."""
        self._silent_since: dict[int, float] = {}
        """The time at which each silent process was first found silent."""
        self.overall = Readiness(False, "no process serves yet")
        self.parts: dict[str, Readiness] = {}
        self.status = status = Status(clock)
        self.registry = CollectorRegistry()
        self.registry.register(self)
        desired = ReadMetric(*DESIRED_SERVERS, lambda: {(): status.desired_servers})
        self.registry.register(desired)
        state = ControlState(self, self.registry, VERSION, status=self)
        self._control = control = open_control_plane(state, facts.options)
        if control:
            control.start()
            self.address = control.address

    @override
    def update(self) -> None:
        """Requests the status of every process."""
        addresses = self._facts.addresses()
        bodies = self._get_all("/api/v1/status", addresses)
        answers = {number: _document(body) for number, body in bodies.items()}
        self._documents = {number: answer for number, answer in answers.items() if answer}
        now = self._clock()  # after the answers: both ends may have been stopped meanwhile
        silent = answers.keys() - self._documents.keys()
        self._silent_since = {number: self._silent_since.get(number, now) for number in silent}
        self.parts = _parts(self._documents)
        states = {number: (answer or _NO_ANSWER)["server"] for number, answer in answers.items()}
        self.overall = _overall(states, len(addresses))
        self.status.update(self._view())

    @override
    def hung(self, seconds: float, /) -> list[int]:
        """Returns the numbers of the processes that have been silent for this time."""
        end = self._clock() - seconds
        return [number for number, since in self._silent_since.items() if since <= end]

    @override
    def drain(self) -> None:
        """Makes the server and its pipelines unready, until the next `update`."""
        self.overall = Readiness(False, SHUTTING_DOWN)
        self.parts = dict.fromkeys(self.parts, self.overall)

    @override
    def stop(self) -> None:
        if self._control:
            self._control.stop()

    def to_json(self, readiness: Mapping[str, Readiness]) -> Document:
        """Returns the document of `/api/v1/status`."""
        return self.status.to_json(self._view(), readiness)

    def bad_samples(self, pipeline: str) -> list[Document] | None:
        """Returns the last bad samples of a pipeline, newest first; None if it does not exist."""
        path = f"/api/v1/pipelines/{quote(pipeline, safe='')}/bad-samples"
        documents = map(_document, self._get_all(path, self._facts.addresses()).values())
        lists = [answer["samples"] for answer in documents if answer and "samples" in answer]
        return merge_bad_samples(lists) if lists else None

    def _view(self) -> ProcessView:
        return merge_views([*map(ProcessView.from_json, list(self._documents.values()))])

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for number, body in self._get_all("/metrics", self._facts.addresses()).items():
            for family in text_string_to_metric_families(body or ""):
                if family.name == DESIRED_SERVERS[0]:
                    continue  # a process only knows its own connections
                empty = Metric(family.name, family.documentation, family.type)
                metric = merged.setdefault(family.name, empty)
                for sample in family.samples:
                    labels = {**sample.labels, "process": str(number)}
                    metric.samples.append(sample._replace(labels=labels))
        return merged.values()

    def describe(self) -> Iterable[Metric]:
        return ()  # the metrics are known only at a scrape

    def _get_all(self, path: str, addresses: list[str | None]) -> dict[int, str | None]:
        """Returns the body from each process that serves, requesting all of them at once."""
        serving = {number: address for number, address in enumerate(addresses) if address}
        with ThreadPoolExecutor(max(1, len(serving))) as threads:
            get = partial(_get, path=path, token=self._facts.token)
            bodies = threads.map(get, serving.values())
            return dict(zip(serving, bodies, strict=True))


def _parts(documents: dict[int, Document]) -> dict[str, Readiness]:
    parts: dict[str, Readiness] = {}
    for number, document in documents.items():
        for pipeline in document["pipelines"]:
            name = pipeline["name"]
            if name not in parts or not pipeline["ready"]:
                reason = f"process {number}: {pipeline['reason']}"
                parts[name] = Readiness(pipeline["ready"], reason)
    return dict(sorted(parts.items()))


def _overall(states: dict[int, Document], count: int) -> Readiness:
    """Returns the readiness of `count` processes from the states of those that serve."""
    if not states:
        return Readiness(False, f"none of {count} processes serves")
    exited = [str(number) for number in range(count) if number not in states]
    restarting = f"; restarting: process {', '.join(exited)}" if exited else ""
    unready = {number: state["reason"] for number, state in states.items() if not state["ready"]}
    if unready:
        reasons = "; ".join(f"process {number}: {reason}" for number, reason in unready.items())
        return Readiness(False, f"{len(unready)} of {count} not ready: {reasons}{restarting}")
    reasons = "; ".join(dict.fromkeys(state["reason"] for state in states.values()))
    return Readiness(True, f"{reasons}, in {len(states)} of {count} processes{restarting}")


def _document(body: str | None) -> Document | None:
    """Returns the JSON object in a body; None if there is none, as after an internal error."""
    try:
        document: Any = json.loads(body or "")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _get(address: str, path: str, token: str) -> str | None:
    """Returns the body of the response; None for an error, or without a response."""
    connection = http.client.HTTPConnection(address, timeout=_RESPONSE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
        response = connection.getresponse()
        body = response.read().decode()
        return body if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException, UnicodeDecodeError):
        return None
    finally:
        connection.close()
