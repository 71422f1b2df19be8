"""File descriptors and threads: what is left, and when peers are refused."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.rpc import resources
from infeed_server.rpc.resources import (
    max_connections,
    missing_threads,
    require_memory_for_start,
    require_threads_for_start,
)

SetLimit = Callable[[int], None]


@pytest.fixture
def set_limit(monkeypatch: pytest.MonkeyPatch) -> SetLimit:
    """Sets what `getrlimit` returns."""

    def set_limit(limit: int) -> None:
        monkeypatch.setattr(resources.resource, "getrlimit", lambda kind: (limit, limit))

    return set_limit


@pytest.mark.parametrize(
    ("limit", "connections"),
    [(1024, 768), (40, 30), (20_000, 1024), (resource.RLIM_INFINITY, 1024)],
)
def test_descriptors_are_kept_for_data(set_limit: SetLimit, limit: int, connections: int) -> None:
    set_limit(limit)
    assert max_connections() == connections


@pytest.mark.parametrize(("left", "missing"), [(None, False), (74, False), (73, True), (0, True)])
def test_threads_of_the_container_are_kept(
    monkeypatch: pytest.MonkeyPatch, left: int | None, missing: bool
) -> None:
    monkeypatch.setattr(resources.cgroup, "pids_left", lambda: left)
    assert (f"only {left} more threads" in missing_threads(streams=1)) == missing


def test_server_without_threads_for_a_stream_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for left, processes in ((110, 1), (146, 2), (None, 9)):
        monkeypatch.setattr(resources.cgroup, "pids_left", lambda left=left: left)
        require_threads_for_start(processes)
    monkeypatch.setattr(resources.cgroup, "pids_left", lambda: 109)
    message = "a server needs at least 110 threads, but the container may start only 109 more"
    with pytest.raises(ConfigError, match=message):
        require_threads_for_start(1)


def test_memory_that_is_too_little_for_any_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources.cgroup, "memory_bytes", lambda: 256 << 20)
    require_memory_for_start()
    monkeypatch.setattr(resources.cgroup, "memory_bytes", lambda: (256 << 20) - 1)
    message = "needs at least 256 MiB of memory, but its limit is 255 MiB: raise the container's"
    with pytest.raises(ConfigError, match=message):
        require_memory_for_start()
