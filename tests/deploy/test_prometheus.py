"""Files of deploy/prometheus and deploy/grafana, and their queries against a live Prometheus.

The live tests start a server, a gateway with a worker, a dispatcher and a worker, trainers that
read from them, and Debian's Prometheus, which scrapes all of them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.deploy.queries import ROOT, RULES, alerts, queries
from tests.harness.nursery import Nursery
from tests.harness.ports import ReservedPort
from tests.harness.process import Process
from tests.harness.spawned import SpawnedProcess
from tests.harness.waiting import TIMEOUT_SECONDS, wait_until

import infeed
from infeed.shared.report import REPORT_INTERVAL_SECONDS

FOLDER = ROOT / "deploy/prometheus"

FEED_SECONDS = 3 * REPORT_INTERVAL_SECONDS
"""Time after which a trainer connects again, so that streams end too: it has reported by then, also
on a machine that makes many steps in it."""

STEP_SECONDS = 0.02


def need(program: str) -> str:
    """Returns the path of a program of Debian's package prometheus. Skips the test without it."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed; Debian's package is prometheus")
    return path


def promtool(*arguments: str | Path, text: str = "") -> str:
    """Returns the output of promtool. Fails the test unless it is successful."""
    result = subprocess.run(
        [need("promtool"), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


# --- files ---


def test_rules_are_valid() -> None:
    promtool("check", "rules", *sorted(RULES.glob("*.yaml")))


def test_the_configuration_is_valid() -> None:
    promtool("check", "config", FOLDER / "prometheus.yaml")


def test_the_configuration_for_kubernetes_is_valid(tmp_path: Path) -> None:
    # Debian builds Prometheus without the discovery of Kubernetes: the rest is checked, with
    # another discovery in its place.
    config = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())
    (scrape,) = config["scrape_configs"]
    assert scrape.pop("kubernetes_sd_configs")[0]["role"] == "pod"
    shutil.copytree(RULES, tmp_path / "rules")
    for secret in (scrape["authorization"]["credentials_file"], scrape["tls_config"]["ca_file"]):
        (tmp_path / Path(secret).name).touch()  # relative to the file
    scrape["authorization"]["credentials_file"] = "token"
    scrape["tls_config"]["ca_file"] = "ca.crt"
    file = tmp_path / "kubernetes.yaml"
    file.write_text(yaml.safe_dump(config))
    promtool("check", "config", file)


def test_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", Path(__file__).with_name("alerts_test.yaml"))


def test_every_alert_has_a_test() -> None:
    cases = yaml.safe_load(Path(__file__).with_name("alerts_test.yaml").read_text())["tests"]
    expected: dict[str, set[bool]] = {}
    for item in cases:
        for case in item.get("alert_rule_test", []):
            expected.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert set(expected) == {item["alert"] for item in alerts()}
    # An alert with a `for` is silent before it.
    waiting = {alert["alert"] for alert in alerts() if "for" in alert}
    assert {name for name, fires in expected.items() if fires == {True, False}} >= waiting


def test_every_alert_has_a_runbook() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    for rule in alerts():
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert path == "docs/operations.md"
        headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
        assert anchor in [heading.lower() for heading in headings], rule["alert"]
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


# --- live ---


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[Any]:
        return list(self.get("query", query=expression)["result"])


class Trainer(threading.Thread):
    """Reads from a server, again and again, until it is stopped."""

    def __init__(self, target: str, tls: infeed.TLS | None = None) -> None:
        super().__init__(name=f"trainer of {target}", daemon=True)
        self._target, self._tls = target, tls
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                with infeed.connect(self._target, "n", tls=self._tls, timeout=300) as feed:
                    end = time.monotonic() + FEED_SECONDS
                    while time.monotonic() < end:
                        feed.next()
                        if self.stopping.wait(STEP_SECONDS):
                            break
        except Exception as error:  # noqa: BLE001 - the fixture raises it
            self.error = error


@pytest.fixture(scope="module")
def started(
    nursery: Nursery, tmp_path_factory: pytest.TempPathFactory, pki: Any
) -> Iterator[dict[str, str]]:
    """Address of the control plane of each process, by name; trainers read from the servers."""
    need("prometheus")
    folder = tmp_path_factory.mktemp("processes")
    np.savez(folder / "n.npz", n=np.arange(640))
    text = f"pipelines: {{n: {{source: {{arrays: {folder}/n.npz}}, batch: {{size: 8}}}}}}"
    (folder / "pipelines.yaml").write_text(text)
    serve = ("serve", "pipelines.yaml")
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> tuple[str, str]:
            ports = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
            process: Process = nursery.start([*arguments, *ports], folder / name, folder)
            stack.callback(process.kill)
            match = re.fullmatch(r"serving on (\S+) \(http (\S+)\)", process.read_line(500))
            assert match, process.stderr
            return match[1], match[2]

        tls = ("--tls-cert", str(pki.server), "--tls-key", str(pki.server_key))
        address, http = start("server", *serve, *tls)
        own = ("--engine", "tf-data-service", "--work-dir", str(folder / "own"))
        gateway_address, gateway_http = start("gateway", *serve, *own)
        dispatcher, dispatcher_http = start("dispatcher", "dispatcher", "--work-dir", "journal")
        _, worker_http = start("worker", "worker", "--dispatcher", dispatcher)
        trainers = [Trainer(address, infeed.TLS(pki.ca)), Trainer(gateway_address)]
        for item in trainers:
            item.start()
        yield {
            "server": http,
            "gateway": gateway_http,
            "dispatcher": dispatcher_http,
            "worker": worker_http,
        }
        for item in trainers:
            item.stopping.set()
        for trainer in trainers:
            trainer.join()
            assert trainer.error is None


@pytest.fixture(scope="module")
def prometheus(
    started: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Prometheus with the files of deploy/prometheus, other targets, and a scrape each second."""
    folder = tmp_path_factory.mktemp("prometheus")
    shutil.copytree(FOLDER, folder / "config")
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (folder / "config/prometheus.yaml").write_text(yaml.safe_dump(config))
    targets = [{"targets": list(started.values())}]
    (folder / "config/targets.yaml").write_text(yaml.safe_dump(targets))
    with ReservedPort() as port:
        command = [
            need("prometheus"),
            f"--config.file={folder}/config/prometheus.yaml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={port.address}",
            "--log.level=warn",
        ]
        with SpawnedProcess(command, folder / "prometheus", cwd=folder) as process:
            running = Prometheus(port.address)

            def ready() -> bool:
                assert not process.ended, process.stderr
                try:
                    return len(running.get("targets")["activeTargets"]) == len(started)
                except OSError:
                    return False

            wait_until(ready, "Prometheus has found its targets", interval=0.2)
            yield running


@pytest.mark.slow
def test_prometheus_scrapes_every_role(prometheus: Prometheus) -> None:
    def states() -> list[tuple[str, str]]:
        return [
            (activeTarget["health"], activeTarget["lastError"])
            for activeTarget in prometheus.get("targets")["activeTargets"]
        ]

    wait_until(
        lambda: not any(health == "unknown" for health, _ in states()),
        lambda: str(states()),
        interval=0.2,
    )
    assert states() == [("up", "")] * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in queries()])
def test_a_query_has_a_result(prometheus: Prometheus, name: str) -> None:
    expression = dict(queries())[name]
    wait_until(
        lambda: prometheus.query(expression), f"no result of {name}: {expression}", interval=0.2
    )
