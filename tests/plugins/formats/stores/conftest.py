"""Object stores: one in memory, and those that the environment names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.harness.object_server import ObjectServer
from tests.harness.real_stores import proxy

from infeed_formats.stores import requests

__all__ = ["proxy", "store"]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """An empty store for `s3://`, without credentials."""
    with ObjectServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setattr(requests, "_process", None)  # which keeps the clients of its stores
        yield server
