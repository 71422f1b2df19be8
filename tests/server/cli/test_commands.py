"""Command `serve`, up to the point at which it loads TensorFlow."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from infeed.cli import new_app
from infeed.shared.errors import ConfigError
from infeed_server.engines import cgroup
from infeed_server.processes.signals import ShutdownSignal
from infeed_server.rpc import resources


def serve(*options: str) -> None:
    CliRunner().invoke(new_app(), ["serve", "none.yaml", *options], catch_exceptions=False)


@pytest.fixture(autouse=True)
def _without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShutdownSignal, "install", lambda self: None)
    monkeypatch.setattr(resources, "raise_file_limit", lambda: 0)


@pytest.mark.parametrize(("processes", "needed"), [(1, 110), (3, 182)])
def test_serve_needs_threads_for_a_stream(
    monkeypatch: pytest.MonkeyPatch, processes: int, needed: int
) -> None:
    monkeypatch.setattr(cgroup, "pids_left", lambda: 109)
    with pytest.raises(ConfigError, match=f"needs at least {needed} threads, but the container"):
        serve("--processes", str(processes))


def test_serve_needs_memory_for_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "pids_left", lambda: None)
    monkeypatch.setattr(cgroup, "memory_bytes", lambda: 224 << 20)
    with pytest.raises(ConfigError, match="its limit is 224 MiB"):
        serve()
