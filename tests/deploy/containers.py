"""Containers on the local Docker engine, as deploy/compose starts them on the host's network."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.harness.ports import ReservedPort
from tests.harness.waiting import wait_until

IMAGES = ("infeed-server", "infeed-trainer")

RESTRICTIONS = (
    *("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--pids-limit", "4096"),
)

GRACE_SECONDS = 30
"""`stop_grace_period` of a server, after which the engine kills it."""

_numbers = itertools.count()


def require_engine() -> None:
    """Skips the test without an engine or without the two images."""
    try:
        found = docker("images", "--format", "{{.Repository}}").split()
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no Docker engine: {error}")
    missing = [item for item in IMAGES if item not in found]
    if missing:
        pytest.skip(f"build {' and '.join(missing)} first; see the Dockerfile")


def docker(*arguments: str, timeout: float = 300) -> str:
    """Returns the standard output of a docker command; raises `CalledProcessError`."""
    result = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=True
    )
    return result.stdout


def http_get(port: int, path: str) -> str | None:
    """Returns the answer of a control plane on loopback, or None if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read().decode() if response.status == http.client.OK else None
    return None


def batches_sent(port: int) -> float:
    """Returns the batches that the server with this control plane has sent."""
    found = re.findall(
        r"^infeed_batches_total\{.*\} (\S+)$", http_get(port, "/metrics") or "", re.MULTILINE
    )
    return sum(map(float, found))


def steps_of_ranks(port: int) -> dict[int, int]:
    """Returns the steps that each rank connected to the server with this control plane has made."""
    status = json.loads(http_get(port, "/api/v1/status") or '{"pipelines": []}')
    trainers = [
        trainer
        for pipeline in status["pipelines"]
        for job in pipeline["jobs"]
        for trainer in job["trainers"]
    ]
    return {item["rank"]: item["report"]["total_steps"] for item in trainers if item["report"]}


class Container:
    """One container, with the restrictions that deploy/compose sets."""

    def __init__(self, image: str, command: list[str], options: list[str]) -> None:
        self.name = f"infeed-test-{os.getpid()}-{next(_numbers)}"
        self._arguments = [*RESTRICTIONS, *options, "--network", "host", image, *command]

    def start(self) -> None:
        """Starts it, also after `remove`."""
        docker("run", "--detach", "--name", self.name, *self._arguments)

    def require_running(self) -> None:
        assert self.inspect()["State"]["Running"], self.logs()

    def inspect(self) -> dict[str, Any]:
        return json.loads(docker("inspect", self.name))[0]

    def logs(self) -> str:
        """Returns its standard output, then its standard error."""
        result = subprocess.run(
            ["docker", "logs", self.name], capture_output=True, text=True, timeout=60, check=True
        )
        return result.stdout + result.stderr

    def output(self) -> str:
        return docker("logs", self.name)

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Returns the result of a command in the container."""
        return subprocess.run(
            ["docker", "exec", self.name, *command],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def wait_until_healthy(self) -> None:
        """Returns once the image's health check passes; fails if the container has exited."""

        def healthy() -> bool:
            self.require_running()
            return self.inspect()["State"]["Health"]["Status"] == "healthy"

        wait_until(healthy, self.logs, interval=0.5)

    def stop(self) -> tuple[int, float]:
        """Returns the exit status after SIGTERM, 137 if the grace is too short, and the seconds."""
        started_at = time.monotonic()
        docker("stop", "--time", str(GRACE_SECONDS), self.name)
        seconds = time.monotonic() - started_at
        return self.inspect()["State"]["ExitCode"], seconds

    def signal(self, name: str) -> None:
        docker("kill", "--signal", name, self.name)

    def wait(self) -> int:
        """Returns the exit status once the container has exited."""
        return int(docker("wait", self.name, timeout=500))

    def remove(self) -> None:
        """Removes it with its volumes, if it exists."""
        with contextlib.suppress(subprocess.CalledProcessError):
            docker("rm", "--force", "--volumes", self.name)


class Engine:
    """Starts containers, and removes all of them."""

    def __init__(self, data: Path, pipelines: Path) -> None:
        self.mounts = [
            *("--volume", f"{data}:/data:ro"),
            *("--volume", f"{pipelines}:/config/pipelines.yaml:ro"),
        ]
        self._started: list[Container] = []
        self._ports = contextlib.ExitStack()

    def new_port(self) -> int:
        """Returns a port of loopback that is reserved until `remove`."""
        return self._ports.enter_context(ReservedPort()).number

    def start(self, *command: str, image: str = "infeed-server", options: list[str]) -> Container:
        """Returns a started container of a role."""
        container = Container(image, ["infeed", *command], options)
        self._started.append(container)
        container.start()
        return container

    def role(self, *command: str, http: int, options: tuple[str, ...] = ()) -> Container:
        """Starts a role whose control plane listens on the port `http`."""
        url = f"INFEED_READY_URL=http://127.0.0.1:{http}/readyz"
        return self.start(
            *command,
            f"--http=127.0.0.1:{http}",
            options=[*self.mounts, "--env", url, "--health-interval", "2s", *options],
        )

    def remove(self) -> None:
        for container in self._started:
            container.remove()
        self._ports.close()


class Server:
    """A server's container with its ports."""

    def __init__(self, engine: Engine, *command: str, options: tuple[str, ...] = ()) -> None:
        self.port, self.http = engine.new_port(), engine.new_port()
        self.address = f"127.0.0.1:{self.port}"
        self.container = engine.role(
            "serve",
            "/config/pipelines.yaml",
            f"--listen={self.address}",
            *command,
            http=self.http,
            options=options,
        )

    def replace(self) -> None:
        """Starts a new container at the address of the old one, which has ended."""
        self.container.remove()
        self.container.start()
        self.container.wait_until_healthy()

    def wait_until_it_sends(self, batches: int, test: Container) -> None:
        """Returns once this container has sent so many batches to a load test."""

        def sent() -> bool:
            test.require_running()
            return batches_sent(self.http) >= batches

        wait_until(sent, self.container.logs, interval=0.5)

    def wait_for_steps(self, ranks: int, more: int, test: Container) -> None:
        """Returns once each rank has made so many more steps than the foremost one has now."""
        target = max(steps_of_ranks(self.http).values(), default=0) + more

        def made() -> bool:
            test.require_running()
            steps = steps_of_ranks(self.http)
            return len(steps) == ranks and min(steps.values()) >= target

        wait_until(made, lambda: f"{steps_of_ranks(self.http)}, {target}", interval=0.5)
