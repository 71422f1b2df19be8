"""Containers on the local Docker engine: the images, and projects of deploy/compose."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.harness.process import ROOT
from tests.harness.waiting import wait_until

FILES = ROOT / "deploy/compose"

_TIMEOUT_SECONDS = 1500.0
"""Bound on a command of the engine: the first build installs TensorFlow."""


def run(*command: str | Path, **variables: str) -> str:
    """Returns the standard output of a command, which must succeed."""
    result = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, f"{command}: {result.stdout[-9000:]}{result.stderr[-9000:]}"
    return result.stdout


def succeeds(*command: str) -> bool:
    found = shutil.which(command[0])
    return bool(found) and not subprocess.run(command, capture_output=True, check=False).returncode


def build_images() -> None:
    """Builds both images from this tree. Skips the test without an engine or Compose."""
    if not succeeds("docker", "info"):
        pytest.skip("needs a Docker engine: `docker info` fails")
    if not compose_command():
        pytest.skip("needs docker-compose or Docker Compose v2")
    for name in ("server", "trainer"):
        # On the host's network, since an engine may have no bridge.
        options = ("--network=host", f"--target={name}", f"--tag=infeed-{name}")
        run("docker", "build", *options, ROOT)


def compose_command() -> list[str]:
    """Returns the command of Compose, empty if it is not installed."""
    known = (["docker", "compose"], ["docker-compose"])
    return next((command for command in known if succeeds(*command, "version")), [])


def wait_until_healthy(name: str) -> None:
    """Returns once the health check of a container passes; fails if the container has ended."""

    def healthy() -> bool:
        state = inspect(name)["State"]
        assert state["Running"], run("docker", "logs", name)
        return state["Health"]["Status"] == "healthy"

    wait_until(healthy, f"{name} is healthy", interval=0.5)


def inspect(name: str) -> dict[str, Any]:
    return json.loads(run("docker", "inspect", name))[0]


def free_ports() -> str:
    """Returns the first digits of free ports that end in 70 to 91: `PORTS` of the Compose files."""
    for digits in map(str, range(101, 300)):
        with ExitStack() as sockets:
            try:
                for last in range(70, 92):
                    probe = sockets.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", int(f"{digits}{last}")))
            except OSError:
                continue
            return digits
    pytest.fail("no free ports from 10170 to 29991")


class Compose:
    """A project of deploy/compose on the host's network, with ports of its own."""

    def __init__(self, data: Path, **variables: str) -> None:
        self._ports = free_ports()
        self._variables = {"DATA_DIR": str(data), "PORTS": self._ports, **variables}
        self.project = f"infeed-test-{os.getpid()}"
        files = ("docker-compose.yaml", "docker-compose.host.yaml")
        self._command = [
            *(*compose_command(), "--project-name", self.project, "--profile", "data-service"),
            *(part for file in files for part in ("--file", str(FILES / file))),
        ]

    def __call__(self, *arguments: str) -> str:
        return run(*self._command, *arguments, **self._variables)

    def up(self, *services: str) -> None:
        """Starts services and what they depend on, and waits until those named are healthy."""
        self("up", "--no-build", "--detach", *services)
        for service in services:
            if "Health" in self.inspect(service)["State"]:
                wait_until_healthy(self.container(service))

    def container(self, service: str) -> str:
        """Returns the id of a service's container, which may have ended."""
        running = run(
            *("docker", "ps", "--all", "--quiet", "--no-trunc"),
            *("--filter", f"label=com.docker.compose.project={self.project}"),
            *("--filter", f"label=com.docker.compose.service={service}"),
        )
        return running.strip()

    def inspect(self, service: str) -> dict[str, Any]:
        return inspect(self.container(service))

    def stop(self, service: str) -> int:
        """Returns the exit status after the stop signal; 137 if the grace was too short."""
        self("stop", service)
        return self.inspect(service)["State"]["ExitCode"]

    def address(self, last: str) -> str:
        """Returns the address of the port with these last two digits."""
        return f"127.0.0.1:{self._ports}{last}"
