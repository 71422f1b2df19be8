"""GET over HTTP, with any status of the answer."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: http.client.HTTPMessage
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def content_type(self) -> str:
        return self.headers["content-type"]


Get = Callable[..., Answer]


def fetch(address: str, path: str, **headers: str) -> Answer:
    """Returns the answer to a GET of `host:port`."""
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read().decode())


def metric(address: str, name: str, **labels: str) -> float:
    """Returns the sum of a metric's samples with these labels, from a control plane."""
    families = text_string_to_metric_families(fetch(address, "/metrics").body)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(item.value for item in samples if labels.items() <= item.labels.items())
