"""Manifests of deploy/kubernetes: probes, ports, security contexts, selectors, names, options."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from tests.deploy.manifests import (
    FOLDER,
    KUSTOMIZATIONS,
    Manifest,
    infeed_containers,
    of_kind,
    pods,
    render,
    selects,
)
from tests.test_ports import TAKEN

from infeed.cli import new_app
from infeed_server.pipeline.load import parse

GRACE_EXTRA_SECONDS = 7
"""Seconds that a server may take after `--grace`: docs/deploy.md."""

README = FOLDER / "README.md"


@pytest.fixture(params=KUSTOMIZATIONS)
def folder(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def manifests(folder: str) -> list[Manifest]:
    return render(folder)


def arguments(container: Manifest) -> list[str]:
    return [*container.get("command", []), *container.get("args", [])]


def parsed(container: Manifest) -> tuple[str, dict[str, Any]]:
    """Returns the command of infeed, and its options and arguments as the CLI parses them."""
    program, command, *rest = arguments(container)
    assert program == "infeed"
    cli: Any = typer.main.get_command(new_app()).commands[command]
    with cli.make_context(command, list(rest)) as context:
        return command, context.params


def option(container: Manifest, name: str) -> str | None:
    """Returns the value of an option of a container's command."""
    values = [
        argument.partition("=")[2] for argument in arguments(container) if argument.startswith(name)
    ]
    return values[0] if values else None


def http_port(container: Manifest) -> int:
    return int(parsed(container)[1]["http"].rpartition(":")[2])


# --- every container ---


def test_every_container_is_restricted(manifests: list[Manifest]) -> None:
    for pod in pods(manifests):
        security = pod.spec["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 10001), pod.owner
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.spec["automountServiceAccountToken"] is False
        for container in pod.containers:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True, (pod.owner, container["name"])
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert "/tmp" in [volumeMount["mountPath"] for volumeMount in container["volumeMounts"]]


def test_the_cli_accepts_the_arguments_of_every_container(manifests: list[Manifest]) -> None:
    for pod in pods(manifests):
        for container in infeed_containers(pod):
            parsed(container)


def test_no_port_is_that_of_a_tpu_runtime(manifests: list[Manifest]) -> None:
    text = yaml.safe_dump(manifests)
    assert not {int(item) for item in re.findall(r"(?<!\d)\d{4,5}(?!\d)", text)} & TAKEN


# --- probes, ports, shutdown ---


def test_probes_request_the_control_plane(manifests: list[Manifest]) -> None:
    for pod in pods(manifests):
        names = {item["name"]: item for item in pod.containers}
        for container in infeed_containers(pod):
            sidecar = container["name"] in {
                item["name"] for item in pod.spec.get("initContainers", [])
            }
            probes = {
                kind: container[f"{kind}Probe"]["httpGet"]
                for kind in ("startup", "liveness", "readiness")
                if f"{kind}Probe" in names[container["name"]]
            }
            expected = {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
            if sidecar:  # its start-up probe keeps the trainer back until the pipelines are ready
                expected = {"startup": "/readyz", "liveness": "/livez"}
            assert {kind: item["path"] for kind, item in probes.items()} == expected
            ports = {item["name"]: item["containerPort"] for item in container.get("ports", [])}
            for probe in probes.values():
                assert ports.get(probe["port"], probe["port"]) == http_port(container), pod.owner
                # Loopback of the node is the pod's only on the node's network.
                assert ("host" in probe) == bool(pod.spec.get("hostNetwork"))


def test_ports_are_those_that_the_processes_listen_on(manifests: list[Manifest]) -> None:
    for pod in pods(manifests):
        for container in infeed_containers(pod):
            options = parsed(container)[1]
            if options["listen"].startswith("unix:"):
                assert "ports" not in container
                continue
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            assert ports == {
                "grpc": int(options["listen"].rpartition(":")[2]),
                "http": http_port(container),
            }


def test_beyond_loopback_a_server_declares_its_network_or_encrypts(
    manifests: list[Manifest],
) -> None:
    for pod in pods(manifests):
        for container in infeed_containers(pod):
            options = parsed(container)[1]
            local = all(
                options[item].startswith(("unix:", "127.0.0.1:")) for item in ("listen", "http")
            )
            assert options["insecure"] is not local, pod.owner


def test_pods_have_time_to_drain(manifests: list[Manifest]) -> None:
    for pod in pods(manifests):
        for container in infeed_containers(pod):
            grace = parsed(container)[1].get("grace", 10.0)
            needed = grace + GRACE_EXTRA_SECONDS
            assert pod.spec["terminationGracePeriodSeconds"] > needed + 5, pod.owner


# --- selectors and names ---


def test_selectors_match_the_pods_of_their_object(manifests: list[Manifest]) -> None:
    for kind in ("Deployment", "StatefulSet"):
        for item in of_kind(kind, manifests):
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert selects(item["spec"]["selector"], labels)
            for constraint in item["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
                assert selects(constraint["labelSelector"], labels)


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy"])
def test_each_selects_pods_that_exist(manifests: list[Manifest], kind: str) -> None:
    templates = list(pods(manifests))
    for item in of_kind(kind, manifests):
        spec = item["spec"]
        selector = {
            "Service": {"matchLabels": spec.get("selector")},
            "PodDisruptionBudget": spec.get("selector"),
            "NetworkPolicy": spec.get("podSelector"),
        }[kind]
        chosen = [pod for pod in templates if selects(selector, pod.labels)]
        assert chosen, item["metadata"]["name"]
        names = {
            port["name"]
            for pod in chosen
            for container in pod.containers
            for port in container["ports"]
        }
        if kind == "Service":
            assert len(chosen) == 1, "a Service mixes different pods"
            assert {port["targetPort"] for port in spec["ports"]} <= names
            assert spec["clusterIP"] == "None"
        for rule in spec.get("ingress", []):
            assert {port["port"] for port in rule["ports"]} <= names


def test_a_policy_lets_trainers_reach_the_servers() -> None:
    (policy,) = of_kind("NetworkPolicy", render("base"))
    (grpc,) = [rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == "grpc"]
    selectors = [item["podSelector"] for item in grpc["from"] if "podSelector" in item]
    for folder in ("trainers", "sidecar"):
        (trainer,) = pods(render(folder))
        assert any(selects(selector, trainer.labels) for selector in selectors)


def test_config_maps_exist_and_secrets_and_claims_are_explained(
    folder: str, manifests: list[Manifest]
) -> None:
    config_maps = {item["metadata"]["name"] for item in of_kind("ConfigMap", manifests)}
    created = set(re.findall(r"kubectl create secret generic (\S+)", README.read_text()))
    accounts = {item["metadata"]["name"] for item in of_kind("ServiceAccount", manifests)}
    for pod in pods(manifests):
        for volume in pod.spec["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] in config_maps, pod.owner
            if "secret" in volume:
                assert volume["secret"]["secretName"] in created, pod.owner
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]
                assert claim["readOnly"]
                assert f"`{claim['claimName']}`" in README.read_text()
        mounts = {
            volumeMount["name"] for one in pod.containers for volumeMount in one["volumeMounts"]
        }
        claims = [
            claim["metadata"]["name"]
            for item in of_kind("StatefulSet", manifests)
            for claim in item["spec"].get("volumeClaimTemplates", [])
        ]
        assert mounts <= {*(item["name"] for item in pod.spec["volumes"]), *claims}
        assert pod.spec.get("serviceAccountName", "default") in {*accounts, "default"}
    assert f"`{folder}`" in README.read_text()


def test_files_in_options_are_mounted(manifests: list[Manifest]) -> None:
    for pod in pods(manifests):
        for container in infeed_containers(pod):
            options = parsed(container)[1]
            mounts = {
                volumeMount["mountPath"]: volumeMount for volumeMount in container["volumeMounts"]
            }
            names = ("pipelines", "tls_cert", "tls_key", "tokens", "work_dir")
            paths = [str(options[name]) for name in names if options.get(name)]
            if options["listen"].startswith("unix:"):
                paths.append(options["listen"].removeprefix("unix:"))
            for path in paths:
                assert path.rpartition("/")[0] in mounts, (pod.owner, path)
            # What the server writes to is writable, and nothing else.
            writable = {path for path, item in mounts.items() if not item.get("readOnly")}
            assert writable <= {"/tmp", "/journal", "/run/infeed", "/var/lib/infeed"}


def test_the_pipelines_are_valid(manifests: list[Manifest]) -> None:
    for item in of_kind("ConfigMap", manifests):
        document = yaml.safe_load(item["data"]["pipelines.yaml"])
        for definition in document["pipelines"].values():
            parse(definition)


# --- each kustomization ---


def test_roles_advertise_names_of_their_services() -> None:
    manifests = render("overlays/data-service")
    services = {item["metadata"]["name"]: item["spec"] for item in of_kind("Service", manifests)}
    dispatcher_address = "infeed-dispatcher-0.infeed-dispatcher:7472"
    for item in of_kind("StatefulSet", manifests):
        name = item["metadata"]["name"]
        assert item["spec"]["serviceName"] == name
        # It connects to its own name before it is ready.
        assert services[name]["publishNotReadyAddresses"] is True
        (container,) = item["spec"]["template"]["spec"]["containers"]
        assert option(container, "--advertise") == f"$(POD_NAME).{name}"
        if name != "infeed-dispatcher":
            assert option(container, "--dispatcher") == dispatcher_address
    (gateway,) = of_kind("Deployment", manifests)
    (container,) = gateway["spec"]["template"]["spec"]["containers"]
    assert option(container, "--dispatcher") == dispatcher_address


@pytest.mark.parametrize("folder", ["trainers", "overlays/trainers", "sidecar"])
def test_a_job_set_runs_on_tpu_hosts(folder: str) -> None:
    (job_set,) = of_kind("JobSet", render(folder))
    # Kueue admits a job only if the queue exists in its namespace.
    (queue,) = of_kind("LocalQueue", render(folder))
    assert job_set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queue["metadata"]["name"]
    assert job_set["metadata"]["namespace"] == queue["metadata"]["namespace"]
    network = job_set["spec"]["network"]
    assert network["enableDNSHostnames"]
    assert network["publishNotReadyAddresses"]
    (job,) = job_set["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (pod,) = pods([job_set])
    assert pod.spec["hostNetwork"]
    assert pod.spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    (toleration,) = pod.spec["tolerations"]
    assert toleration == {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
    (trainer,) = pod.spec["containers"]
    environment = {item["name"]: item.get("value") for item in trainer["env"]}
    assert int(environment["WORLD_SIZE"]) == spec["parallelism"] == spec["completions"]
    assert spec["completionMode"] == "Indexed"


def test_trainers_connect_to_the_service_by_name() -> None:
    (service,) = of_kind("Service", render("base"))
    (pod,) = pods(render("trainers"))
    environment = {item["name"]: item.get("value") for item in pod.containers[0]["env"]}
    metadata, port = service["metadata"], service["spec"]["ports"][0]
    assert port["name"] == "grpc"
    name = f"{metadata['name']}.{metadata['namespace']}.svc.cluster.local"
    assert environment["TARGET"] == f"dns:///{name}:{port['port']}"


def test_servers_of_another_version_share_nothing_with_the_first(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, copy)
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    added = copy / "overlays/production-v2"
    added.mkdir()
    (added / "kustomization.yaml").write_text(text)
    manifests = render(str(added))
    (namespace,) = of_kind("Namespace", manifests)
    name = namespace["metadata"]["name"]
    assert name != "infeed"
    assert f"infeed.{name}.svc.cluster.local" in README.read_text()
    others = [manifest for manifest in manifests if manifest is not namespace]
    assert {other["metadata"]["namespace"] for other in others} == {name}
    (scaled,) = of_kind("ScaledObject", manifests)
    (deployment,) = of_kind("Deployment", manifests)
    assert scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    assert query == f'max(infeed_desired_servers{{namespace="{name}"}})'


def test_a_sidecar_shares_its_socket_with_the_trainer() -> None:
    (pod,) = pods(render("sidecar"))
    server, trainer = pod.containers
    assert server["restartPolicy"] == "Always"
    assert server in pod.spec["initContainers"]
    environment = {item["name"]: item.get("value") for item in trainer["env"]}
    assert environment["TARGET"] == parsed(server)[1]["listen"]
    (shared,) = [volume["name"] for volume in pod.spec["volumes"] if volume["name"] == "socket"]
    mounts = [
        volumeMount
        for one in pod.containers
        for volumeMount in one["volumeMounts"]
        if volumeMount["name"] == shared
    ]
    assert [item["mountPath"] for item in mounts] == ["/run/infeed", "/run/infeed"]
    assert [mount.get("readOnly", False) for mount in mounts] == [False, True]
