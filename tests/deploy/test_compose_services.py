"""The Compose files: commands, mounts, limits, order of start and end, profiles of each service."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer.main
from tests.deploy.test_compose import BRIDGE, FOLDER, HOST, LIGHT, MONITORING, ROLES, SERVERS

from infeed.cli import new_app

DATA = "${DATA_DIR:?set DATA_DIR to a folder of images with a labels.csv}:/data:ro"

PIPELINES = "../pipelines.yaml:/config/pipelines.yaml:ro"

WORKERS = {"worker1", "worker2"}

PROFILES = {
    "trainer": "epoch",
    **dict.fromkeys((*WORKERS, "dispatcher", "gateway", "gateway-trainer"), "data-service"),
    **dict.fromkeys(MONITORING, "monitoring"),
}


def parsed(service: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the command of infeed, and its options and arguments as the CLI parses them."""
    program, command, *rest = service["command"]
    assert program == "infeed"
    cli: Any = typer.main.get_command(new_app()).commands[command]
    with cli.make_context(command, list(rest)) as context:
        return command, context.params


def seconds(duration: str) -> float:
    match = re.fullmatch(r"(\d+)s", duration)
    assert match, duration
    return float(match[1])


@pytest.mark.parametrize("name", sorted(ROLES | {"loadtest"}))
def test_the_cli_accepts_the_command_of_each_service(name: str) -> None:
    commands = {**dict.fromkeys(WORKERS, "worker"), **dict.fromkeys(SERVERS, "serve")}
    for service in (BRIDGE[name], HOST[name]):
        if service is BRIDGE[name] and name in ("server1", "server2"):
            assert "command" not in service  # that of the image
            continue
        command, options = parsed(service)
        assert command == commands.get(name, name)
        if command == "serve":
            assert options["pipelines"] == "/config/pipelines.yaml"
            engine = "tf-data-service" if name == "gateway" else "local"
            assert options["engine"] == engine
        if command in ("dispatcher", "worker") and service is BRIDGE[name]:
            # On all addresses of the container: by default a role listens on loopback.
            assert options["listen"].startswith("0.0.0.0:")
            assert options["http"].startswith("0.0.0.0:")


@pytest.mark.parametrize("name", sorted(ROLES))
def test_ports_of_the_command_are_exposed(name: str) -> None:
    options: dict[str, Any] = {"listen": "0.0.0.0:7470", "http": "0.0.0.0:7471"}
    if "command" in BRIDGE[name]:
        options = parsed(BRIDGE[name])[1]
    assert BRIDGE[name]["expose"] == [
        options[each].rpartition(":")[2] for each in ("listen", "http")
    ]


@pytest.mark.parametrize("name", sorted(ROLES | LIGHT))
def test_a_role_mounts_what_it_reads_and_can_change_nothing_of_it(name: str) -> None:
    expected = {
        **{each: [DATA, PIPELINES] for each in SERVERS},
        **{each: [DATA] for each in WORKERS},
        # As a whole, so that the volume gets the owner of the image's folder.
        "dispatcher": ["journal:/var/lib/infeed"],
        "loadtest": ["results:/var/lib/infeed"],
    }
    for service in (BRIDGE[name], HOST[name]):
        assert service.get("volumes", []) == expected.get(name, [])
    if name == "dispatcher":
        for service in (BRIDGE[name], HOST[name]):
            assert str(parsed(service)[1]["work_dir"]).startswith("/var/lib/infeed/")


@pytest.mark.parametrize("name", sorted(ROLES))
def test_a_role_has_enough_threads_and_time(name: str) -> None:
    service = HOST[name]
    assert service["pids_limit"] == 4096
    # A dispatcher ends within 10 seconds, a worker within 7: docs/deploy.md.
    assert seconds(service["stop_grace_period"]) == (30 if name in SERVERS else 15)
    check = service["healthcheck"]
    assert check["test"] == ["CMD", "python", "-IS", "/opt/infeed/healthcheck.py"]
    assert seconds(check["start_period"]) >= 120
    assert seconds(check["timeout"]) > 5  # that of its request
    assert seconds(check["interval"]) <= 5
    assert check["retries"] >= 3


def test_roles_that_must_be_restarted_are() -> None:
    # Status 3 of a worker requests a restart. A dispatcher that cannot start ends after five.
    policies = {name: each["restart"] for name, each in HOST.items() if "restart" in each}
    assert policies == {
        "dispatcher": "on-failure:5",
        **dict.fromkeys(WORKERS, "on-failure"),
    }


def test_services_start_when_what_they_need_is_ready() -> None:
    healthy, started = {"condition": "service_healthy"}, {"condition": "service_started"}
    for name in WORKERS:
        assert BRIDGE[name]["depends_on"] == {"dispatcher": healthy}
    # The gateway itself waits for the first worker.
    assert BRIDGE["gateway"]["depends_on"] == {
        "dispatcher": healthy,
        **dict.fromkeys(WORKERS, started),
    }
    assert BRIDGE["grafana"]["depends_on"] == ["prometheus"]


def test_profiles_of_the_services() -> None:
    found = {name: each["profiles"] for name, each in BRIDGE.items() if "profiles" in each}
    assert found == {name: [profile] for name, profile in PROFILES.items()}


def test_images_are_built_from_the_root_with_the_labels_of_the_environment() -> None:
    for name in LIGHT | {"server1", "server2", "dispatcher"}:
        build = BRIDGE[name]["build"]
        assert (FOLDER / build["context"]).resolve() == FOLDER.parents[1]
        assert not any(build["args"].values()), "a default that check.sh does not set"


def test_the_load_test_is_a_gate_whose_report_survives_its_container() -> None:
    service = BRIDGE["loadtest"]
    _, options = parsed(service)
    assert (options["trainers"], options["step_ms"], options["rtt_ms"]) == (4, 1000, 20)
    assert (options["duration"], options["min_utilisation"]) == (30, 0.9)
    # Relative to the working directory of the image, which is the volume; check.sh copies both.
    assert {"--html=report.html", "--json=result.json"} <= {*service["command"]}
    script = (FOLDER.parent / "check.sh").read_text(encoding="utf-8")
    assert "for file in report.html result.json" in script
    assert '"$container:/var/lib/infeed/$file"' in script
    assert service["stop_signal"] == "SIGINT"


@pytest.mark.parametrize("name", ["trainer", "gateway-trainer"])
def test_trainers_read_as_many_epochs_as_are_asked_for(name: str) -> None:
    assert str(BRIDGE[name]["environment"]["EPOCHS"]) == "1"
    # The data service does not report the number of samples.
    assert ("SAMPLES" in BRIDGE[name]["environment"]) == (name == "gateway-trainer")


def test_monitoring_mounts_the_files_of_deploy_and_listens_where_they_say() -> None:
    prometheus, grafana = BRIDGE["prometheus"], BRIDGE["grafana"]
    assert "../prometheus:/etc/prometheus:ro" in prometheus["volumes"]
    assert "../grafana/provisioning:/etc/grafana/provisioning:ro" in grafana["volumes"]
    assert "../grafana/dashboards:/var/lib/grafana/dashboards:ro" in grafana["volumes"]
    for service, address in ((prometheus, "0.0.0.0:9090"), (HOST["prometheus"], "127.0.0.1:9090")):
        assert "--config.file=/etc/prometheus/prometheus.yaml" in service["command"]
        assert f"--web.listen-address={address}" in service["command"]
    # Without an account, so on loopback only.
    assert grafana["environment"] == {"GF_AUTH_ANONYMOUS_ENABLED": "true"}
    assert HOST["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert HOST["grafana"]["extra_hosts"] == ["prometheus:127.0.0.1"]
    for service in (prometheus, grafana):
        assert re.fullmatch(r"\S+:v?\d+\.\d+\.\d+", service["image"])  # a version, not `latest`
