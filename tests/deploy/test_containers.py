"""Containers on a Docker engine: contents, restrictions, health, shutdown, a rollout under load.

Skipped without an engine. Builds both images from this tree first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.deploy.containers import (
    Compose,
    build_images,
    free_ports,
    inspect,
    run,
    wait_until_healthy,
)
from tests.deploy.test_tpu_vm import unit_lines
from tests.harness.http_get import metric
from tests.harness.process import ROOT
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

RESTRICTED = (
    *("docker", "run", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL"),
    *("--security-opt=no-new-privileges", "--network=none"),
)
"""The options of docs/deploy.md. Without a network, the default ports are a container's own."""

EXACT = "samples seen 0x: 0, 1x: 60, >1x: 0"
"""What deploy/trainer.py prints after an epoch of `few_photos`."""

PIPELINES = ROOT / "deploy/pipelines.yaml"


@pytest.fixture(scope="module")
def data(few_photos: SimpleNamespace) -> Path:
    build_images()
    few_photos.folder.chmod(0o755)  # the image's user cannot enter a folder of pytest's
    return few_photos.folder


@pytest.fixture
def compose(data: Path) -> Iterator[Compose]:
    compose = Compose(data, DURATION="3600")
    yield compose
    print(compose("logs", "--no-color"))  # pytest shows it after a failure
    compose("down", "--timeout=0", "--volumes")


@pytest.fixture
def mounts(data: Path) -> list[str]:
    return [f"--volume={data}:/data:ro", f"--volume={PIPELINES}:/config/pipelines.yaml:ro"]


@pytest.fixture
def name() -> Iterator[str]:
    """A container's name; the container is removed after the test."""
    name = f"infeed-test-{os.getpid()}"
    yield name
    run("docker", "rm", "--force", "--volumes", name)


def check_restrictions(container: str) -> None:
    """Checks that a container runs as the image's user, and can write to nothing but /tmp."""
    script = "id -u; id -g; awk '/CapEff|NoNewPrivs/ {print $2}' /proc/1/status; touch /tmp/x; "
    # All users may write to /var/tmp of the image.
    script += "for item in / /var/tmp /data; do touch $item/x && echo $item; done 2>/dev/null; :"
    output = run("docker", "exec", container, "sh", "-c", script)
    assert output.split() == ["10001", "10001", "0000000000000000", "1"]


@pytest.mark.parametrize("target", ["server", "trainer"])
def test_an_image_has_the_pinned_versions(data: Path, target: str) -> None:
    script = "from importlib.metadata import distributions as d; "
    script += "print(*(f'{item.name}=={item.version}' for item in d()))"
    found = run(*RESTRICTED, "--rm", f"infeed-{target}", "python", "-c", script)
    versions = set(re.sub("[._]", "-", found.lower()).split())
    pins = set(re.sub("[._]", "-", (ROOT / "requirements/dev.txt").read_text().lower()).split())
    assert {item.partition("==")[0] for item in versions - pins} == {"infeed"}
    # The trainer's client is light.
    assert any(item.startswith("tensorflow==") for item in versions) == (target == "server")


def test_the_servers_own_command_is_healthy_and_drains(mounts: list[str], name: str) -> None:
    run(*RESTRICTED, "--detach", f"--name={name}", *mounts, "infeed-server")
    wait_until_healthy(name)
    check_restrictions(name)
    run("docker", "stop", "--time=30", name)
    assert inspect(name)["State"]["ExitCode"] == 0, run("docker", "logs", name)


def test_a_trainers_container_reads_from_a_tpu_vms_server(
    data: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "run"
    run("install", "--directory", "--mode=0750", "--owner=1234", "--group=1234", folder)
    changes = {
        "--rm --name infeed-server": f"--detach --name {name}",
        "--network host": "--network none",
        "/run/infeed:": f"{folder}:",
        "/etc/infeed/pipelines.yaml:": f"{PIPELINES}:",
        "--ulimit nofile=65536:65536": "",  # above the hard limit of some engines
        "${INFEED_USER}": "1234:1234",
        "${INFEED_CPUS}": "1",
        "${INFEED_MEMORY}": "2g",
        "${INFEED_DATA}": str(data),
        "${INFEED_IMAGE}": "infeed-server",
    }
    line = dict(unit_lines())["ExecStart"]
    for part, replacement in changes.items():
        assert part in line
        line = line.replace(part, replacement)
    run(*line.split())
    wait_until_healthy(name)
    options = ("--rm", "--user=1234:1234", f"--volume={folder}:/run/infeed:ro")
    target = ("--env=TARGET=unix:/run/infeed/server.sock", "--env=PIPELINE=images")
    assert EXACT in run(*RESTRICTED, *options, *target, "infeed-trainer")
    run("docker", "stop", "--time=35", name)
    assert inspect(name)["State"]["ExitCode"] == 0, run("docker", "logs", name)


@pytest.mark.parametrize("options", [(), ("--unix",), ("--service",), ("--loadtest",)])
def test_check_passes_and_delivers_each_sample_once(
    data: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    variables = {"MIN_UTILISATION": "0.1", "DURATION": "5", "RESULTS_DIR": str(tmp_path)}
    script = ROOT / "deploy/check.sh"
    output = run(script, "--host", *options, DATA_DIR=str(data), PORTS=free_ports(), **variables)
    if "--loadtest" in options:
        assert json.loads((tmp_path / "result.json").read_text())["audit"]["exact"]
        assert "</html>" in (tmp_path / "report.html").read_text()
    else:
        assert EXACT in output
        assert "no shared memory" not in output
    labels = inspect("infeed-trainer")["Config"]["Labels"]
    revision = run("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    assert labels["org.opencontainers.image.revision"] == revision


def test_every_role_is_restricted_healthy_and_drains(compose: Compose) -> None:
    # In the order of a rollout, from the trainers' side.
    roles = ("server1", "gateway", "worker1", "dispatcher")
    compose.up(*roles)
    for role in roles:
        check_restrictions(compose.container(role))
    for role in roles:
        assert compose.stop(role) == 0, role


def test_rolling_replacement_of_servers_loses_nothing(compose: Compose, tmp_path: Path) -> None:
    compose.up("loadtest")

    def wait_until_sent(http: str) -> None:
        def sent() -> bool:
            assert compose.inspect("loadtest")["State"]["Running"]
            return metric(compose.address(http), "infeed_batches_total") >= 10

        wait_until(sent, "the server has sent ten batches", interval=0.5)

    for server, http in (("server1", "71"), ("server2", "81")):
        wait_until_sent(http)
        assert compose.stop(server) == 0
        compose("rm", "--force", server)
        compose.up(server)
        wait_until_sent(http)
    assert compose.stop("loadtest") == 130
    run("docker", "cp", f"{compose.container('loadtest')}:/var/lib/infeed/result.json", tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["failures"] == []
    assert result["audit"]["exact"], result["audit"]
