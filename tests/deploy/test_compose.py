"""The Compose files: services, restrictions, addresses and ports that must agree."""

from __future__ import annotations

import importlib.util
import os
import re
import ssl
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.deploy.commands import parsed, port
from tests.harness.process import ROOT
from tests.harness.waiting import TIMEOUT_SECONDS

FOLDER = ROOT / "deploy/compose"

LIGHT = {"loadtest", "trainer", "gateway-trainer"}

MONITORING = {"prometheus", "grafana"}

SERVERS = {"server1", "server2", "gateway"}

ROLES = SERVERS | {"dispatcher", "worker1", "worker2"}


def services(*names: str) -> dict[str, dict[str, Any]]:
    """Returns the services of Compose files, merged as Compose does, with default variables."""
    merged: dict[str, dict[str, Any]] = {}
    for name in names or ("docker-compose.yaml",):
        text = (FOLDER / name).read_text(encoding="utf-8")
        document = yaml.safe_load(re.sub(r"\$\{\w+:-(.*?)\}", r"\1", text))
        for service, content in document["services"].items():
            one = merged.setdefault(service, {})
            for key, value in content.items():
                keeps = isinstance(value, dict) and key in one
                one[key] = {**one[key], **value} if keeps else value
    return merged


BRIDGE = services()
HOST = services("docker-compose.yaml", "docker-compose.host.yaml")


def options(service: dict[str, Any]) -> dict[str, str]:
    """Returns the options of a service's command, which may be the image's."""
    default = ["--listen", "0.0.0.0:7470", "--http", "0.0.0.0:7471", "--insecure"]
    words = [part for word in service.get("command", default) for part in word.split("=")]
    return dict(zip(words, [*words[1:], ""], strict=True))


def test_services_are_those_of_the_lists_above_and_of_the_override() -> None:
    assert set(BRIDGE) == LIGHT | MONITORING | ROLES
    assert set(services("docker-compose.host.yaml")) == set(BRIDGE)
    assert all(item["network_mode"] == "host" for item in HOST.values())
    assert set(services("docker-compose.override.yaml")) <= set(BRIDGE)
    default = {name for name, item in BRIDGE.items() if "profiles" not in item}
    assert default == {"server1", "server2", "loadtest"}


@pytest.mark.parametrize("name", sorted(LIGHT | ROLES))
def test_containers_of_infeed_are_restricted(name: str) -> None:
    service = HOST[name]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_server_has_more_time_to_end_than_its_grace(name: str) -> None:
    assert BRIDGE[name]["stop_grace_period"] == "30s"
    assert "--grace" not in options(BRIDGE[name])
    assert BRIDGE[name]["pids_limit"] == 4096


@pytest.mark.parametrize("name", sorted(ROLES))
def test_listens_on_loopback_or_on_a_network_of_containers(name: str) -> None:
    for address in (options(HOST[name])["--listen"], options(HOST[name])["--http"]):
        assert address.startswith("127.0.0.1:")
    assert "--insecure" not in options(HOST[name])
    assert "--insecure" in options(BRIDGE[name])
    assert "ports" not in BRIDGE[name]
    addresses = (options(BRIDGE[name])[item] for item in ("--listen", "--http"))
    assert BRIDGE[name]["expose"] == [port(address) for address in addresses]


@pytest.mark.parametrize("name", sorted(ROLES))
def test_health_check_requests_the_services_control_plane(name: str) -> None:
    default = {"INFEED_READY_URL": "http://127.0.0.1:7471/readyz"}
    assert f"INFEED_READY_URL={default['INFEED_READY_URL']}" in (ROOT / "Dockerfile").read_text()
    for service in (BRIDGE[name], HOST[name]):
        url = service.get("environment", default)["INFEED_READY_URL"]
        assert url == f"http://127.0.0.1:{port(options(service)['--http'])}/readyz"
        assert service["healthcheck"]["test"][-1] == "/opt/infeed/healthcheck.py"


def test_addresses_are_those_of_the_services() -> None:
    for all_services in (BRIDGE, HOST):
        host = "127.0.0.1" if all_services is HOST else None
        address = {
            name: f"{host or name}:{port(options(all_services[name])['--listen'])}"
            for name in ROLES
        }
        both = f"{address['server1']},{address['server2']}"
        assert both in all_services["loadtest"]["command"]
        assert all_services["trainer"]["environment"]["TARGET"] == both
        assert all_services["gateway-trainer"]["environment"]["TARGET"] == address["gateway"]
        for name in ("worker1", "worker2", "gateway"):
            assert options(all_services[name])["--dispatcher"] == address["dispatcher"]


def test_files_exist_and_ports_are_not_shared_or_open() -> None:
    used = [options(HOST[name])[item] for name in ROLES for item in ("--listen", "--http")]
    assert len(set(used)) == len(used)
    for service in services("docker-compose.override.yaml").values():
        assert all(item.startswith("127.0.0.1:") for item in service["ports"])
    for name, service in HOST.items():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).exists(), name


@pytest.mark.parametrize("name", sorted(ROLES | {"loadtest"}))
def test_the_cli_accepts_the_command_of_each_service(name: str) -> None:
    commands = {"worker1": "worker", "worker2": "worker", **dict.fromkeys(SERVERS, "serve")}
    for service in (BRIDGE[name], HOST[name]):
        if service is BRIDGE[name] and name in ("server1", "server2"):
            assert "command" not in service  # the image's
            continue
        command, options = parsed(service["command"])
        assert command == commands.get(name, name)
        if command == "serve":
            assert options["pipelines"] == "/config/pipelines.yaml"
            engine = "tf-data-service" if name == "gateway" else "local"
            assert options["engine"] == engine


# --- check.sh ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    ["", "file,label\n", '\ufeff"File", "Label"\r\n', "label,file,split\n"],
    ids=["without a header", "header", "header of a spreadsheet", "other columns"],
)
def test_check_counts_the_samples_of_the_data(tmp_path: Path, first: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "labels.csv").write_text(f"{first}label.jpg,1\n\nb.jpg,2\n", encoding="utf-8")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$SAMPLES" >>{tmp_path}/samples\necho 0\n')
    docker.chmod(0o755)
    subprocess.run(
        [ROOT / "deploy/check.sh", "--service"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "DATA_DIR": str(data)},
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    assert set((tmp_path / "samples").read_text().split()) == {"2"}


# --- the health check -------------------------------------------------------------------------


@pytest.fixture
def healthcheck(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", ROOT / "deploy/healthcheck.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # A proxy of the environment must not be used for loopback.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    return module


class Ready(BaseHTTPRequestHandler):
    """Answers 503 with a reason, until the server's `ready` is true."""

    def do_GET(self) -> None:
        self.send_response(200 if self.server.ready and self.path == "/readyz" else 503)
        self.end_headers()
        self.wfile.write(b"opening its source")

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_health_check_follows_readiness(
    healthcheck: ModuleType, monkeypatch: pytest.MonkeyPatch, pki: Any, scheme: str
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ready)
    if scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # For another host: a server's certificate names the server, not loopback.
        context.load_cert_chain(pki.elsewhere, pki.elsewhere_key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.ready = False
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        monkeypatch.setenv("INFEED_READY_URL", f"{scheme}://127.0.0.1:{server.server_port}/readyz")
        assert "503 opening its source" in healthcheck.main()
        server.ready = True
        assert healthcheck.main() is None
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert "refused" in healthcheck.main()
    monkeypatch.setenv("INFEED_READY_URL", "127.0.0.1:7471")
    assert "INFEED_READY_URL is '127.0.0.1:7471'" in healthcheck.main()
