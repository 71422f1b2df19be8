"""Containers of every role on a Docker engine: restrictions, health, and a rollout under load.

Skipped without an engine or the images of the Dockerfile. `-rP` shows the measured figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from tests.deploy.containers import (
    GRACE_SECONDS,
    Container,
    Engine,
    Server,
    require_engine,
)
from tests.harness.process import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def engine(photos: SimpleNamespace) -> Iterator[Engine]:
    require_engine()
    # The image's user cannot enter a folder of pytest's.
    if not photos.folder.stat().st_mode & 0o001:
        photos.folder.chmod(0o755)
    engine = Engine(photos.folder, ROOT / "deploy/pipelines.yaml")
    yield engine
    engine.remove()


RANKS = 3


def load(engine: Engine, *servers: Server) -> Container:
    """Starts a load test that ends at SIGINT, and returns it once each server has sent batches."""
    for item in servers:
        item.container.wait_until_healthy()
    targets = ",".join(item.address for item in servers)
    options = [f"--trainers={RANKS}", "--step-ms=500", "--rtt-ms=20", "--duration=3600"]
    # Few, so that a server of a busy machine can send within its grace what it owes.
    options += ["--warm-up=1", "--prefetch-batches=8", "--timeout=120"]
    container = engine.start(
        *("loadtest", targets, "images", *options, "--json=-"),
        image="infeed-trainer",
        options=[],
    )
    for server in servers:
        server.wait_for_steps(RANKS, 5, container)
    return container


def finish(container: Container, server: Server) -> None:
    """Ends a load test some steps later, whose audit of every sample so far must be exact."""
    server.wait_for_steps(RANKS, 10, container)
    container.signal("INT")
    assert container.wait() == 130, container.logs()
    result = json.loads(container.output())
    assert result["failures"] == []
    (job,) = result["audit"]["jobs"]
    assert job["exact"], job["findings"]
    assert job["total"]["once"] > 0
    assert all(trainer["figures"]["steps"] > 0 for trainer in result["trainers"])


def check_restrictions(container: Container) -> None:
    """Checks that a container runs as the image's user, and can write to nothing but /tmp."""
    assert container.execute("id", "-u").stdout.split() == ["10001"]
    status = container.execute("cat", "/proc/1/status").stdout
    capabilities = dict(line.split(":", 1) for line in status.splitlines())
    assert int(capabilities["CapEff"], 16) == 0
    assert int(capabilities["NoNewPrivs"]) == 1
    for path in ("/x", "/opt/venv/x", "/config/x", "/data/x"):
        refused = container.execute("touch", path)
        assert refused.returncode != 0, path
        assert "Read-only" in refused.stderr or "denied" in refused.stderr
    assert container.execute("touch", "/tmp/x").returncode == 0


def test_every_role_is_restricted_healthy_and_drains_within_its_grace(engine: Engine) -> None:
    server = Server(engine)
    dispatch = f"127.0.0.1:{engine.new_port()}"
    roles = {
        "serve": server.container,
        "dispatcher": engine.role(
            *("dispatcher", f"--listen={dispatch}", "--work-dir=/var/lib/infeed/journal"),
            http=engine.new_port(),
            options=("--volume", "/var/lib/infeed"),
        ),
    }
    roles["dispatcher"].wait_until_healthy()
    roles["worker"] = engine.role(
        *("worker", f"--dispatcher={dispatch}", f"--listen=127.0.0.1:{engine.new_port()}"),
        http=engine.new_port(),
    )
    remote = ("--engine=tf-data-service", f"--dispatcher={dispatch}")
    roles["gateway"] = Server(engine, *remote).container
    for name, container in roles.items():
        container.wait_until_healthy()
        check_restrictions(container)
        print(f"{name}: healthy, user 10001, read-only root")
    # In the order of a rollout, from the trainers' side.
    for name in ("serve", "gateway", "worker", "dispatcher"):
        status, seconds = roles[name].stop()
        print(f"{name}: exit status {status}, {seconds:.1f} s after SIGTERM")
        assert status == 0, roles[name].logs()
        assert seconds < GRACE_SECONDS


def test_profile_runs_restricted(engine: Engine) -> None:
    profile = engine.start(
        *("profile", "/config/pipelines.yaml", "images", "--seconds=5"),
        options=[*engine.mounts, "--no-healthcheck"],
    )
    assert profile.wait() == 0, profile.logs()
    assert "images" in profile.output()


def test_rolling_replacement_of_servers_loses_nothing(engine: Engine) -> None:
    servers = [Server(engine), Server(engine)]
    test = load(engine, *servers)
    for server in servers:
        status, seconds = server.container.stop()
        print(f"exit status {status}, {seconds:.1f} s after SIGTERM")
        assert status == 0, server.container.logs()
        server.replace()
        server.wait_until_it_sends(5, test)
    finish(test, servers[0])
