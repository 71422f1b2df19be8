"""Manifests of deploy/kubernetes: what every pod has, what refers to what, and each kustomization.

`EXPECTED` has the values that are promised; the tests check what a value depends on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.deploy.commands import parsed, port
from tests.deploy.manifests import (
    FOLDER,
    IN_NAMESPACE,
    KUSTOMIZATIONS,
    Manifest,
    Pod,
    infeed_containers,
    of_kind,
    pods,
    render,
    selects,
)

from infeed.prefetch.prefetcher import RESOLVE_INTERVAL_SECONDS
from infeed_server.pipeline.load import parse

GRACE_EXTRA_SECONDS = 7
"""Seconds that a server may take after `--grace`: docs/deploy.md."""

DNS_CACHE_SECONDS = 30
"""Seconds for which a cluster's DNS caches a name, by default."""

LABELS = {"app.kubernetes.io/name", "app.kubernetes.io/component"}
README = (FOLDER / "README.md").read_text()

POD = {
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "automountServiceAccountToken": False,
    # For a Service `infeed` the variables would begin with INFEED_, as options do.
    "enableServiceLinks": False,
}
CONTAINER = {
    "securityContext": {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    },
}
EXPECTED: dict[str, dict[str, Any]] = {
    "Deployment": {
        "spec": {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
    },
    "PodDisruptionBudget": {
        "spec": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    },
    "Service": {"spec": {"clusterIP": "None"}},
    "ServiceAccount": {"automountServiceAccountToken": False},
    "JobSet": {
        "metadata": {
            "annotations": {
                "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
            }
        },
        "spec": {"network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True}},
    },
}
"""Kind → what each of its objects has."""

TRAINER_POD = {
    "hostNetwork": True,
    "dnsPolicy": "ClusterFirstWithHostNet",
    "restartPolicy": "Never",
    "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
}
"""What the pods of a JobSet have."""


def assert_has(actual: Any, expected: Any, where: str) -> None:
    """Fails unless the values of nested mappings are the expected ones; others are allowed."""
    if not isinstance(expected, dict):
        assert actual == expected, where
        return
    for key, value in expected.items():
        assert key in actual, f"{where}: no {key}"
        assert_has(actual[key], value, f"{where}.{key}")


@pytest.fixture(params=KUSTOMIZATIONS)
def folder(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def manifests(folder: str) -> list[Manifest]:
    return render(folder)


def roles(manifests: list[Manifest]) -> Iterator[tuple[Pod, Manifest, dict[str, Any]]]:
    """Yields each container of a role with its pod, and its options as the CLI parses them."""
    for pod in pods(manifests):
        for container in infeed_containers(pod):
            words = [*container.get("command", []), *container.get("args", [])]
            yield pod, container, parsed(words)[1]


def is_sidecar(pod: Pod, container: Manifest) -> bool:
    return container in pod.spec.get("initContainers", [])


def mounts(container: Manifest) -> dict[str, Manifest]:
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


def environment(container: Manifest) -> dict[str, Any]:
    return {item["name"]: item.get("value", item) for item in container.get("env", [])}


def by_name(kind: str, manifests: list[Manifest]) -> dict[str, Manifest]:
    return {item["metadata"]["name"]: item for item in of_kind(kind, manifests)}


# --- every pod and container ---


def test_objects_have_the_expected_values(folder: str, manifests: list[Manifest]) -> None:
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        assert_has(manifest, EXPECTED.get(manifest["kind"], {}), name)
    for pod in pods(manifests):
        assert_has(pod.spec, POD, pod.owner)
        if folder != "trainers":  # volumes, sockets and Secrets belong to the group
            assert pod.spec["securityContext"]["fsGroup"] == 10001, pod.owner
        for container in pod.containers:
            assert_has(container, CONTAINER, pod.owner)
            assert "/tmp" in mounts(container), pod.owner
    assert f"`{folder}`" in README


def test_addresses_of_the_command_agree_with_the_pod(manifests: list[Manifest]) -> None:
    for pod, container, options in roles(manifests):
        listen, http = options["listen"], options["http"]
        if listen.startswith("unix:"):
            assert "ports" not in container
        else:
            ports = {item["name"]: item["containerPort"] for item in container["ports"]}
            assert ports == {"grpc": int(port(listen)), "http": int(port(http))}, pod.owner
        # Beyond loopback, a server declares its network or encrypts.
        local = all(address.startswith(("unix:", "127.0.0.1:")) for address in (listen, http))
        encrypted = options.get("tls_cert") and options.get("http_tls")
        assert options["insecure"] is not bool(local or encrypted), pod.owner
        needed = options.get("grace", 10.0) + GRACE_EXTRA_SECONDS
        assert pod.spec["terminationGracePeriodSeconds"] > needed + 5, pod.owner


def test_probes_request_the_control_plane_in_time(manifests: list[Manifest]) -> None:
    for pod, container, options in roles(manifests):
        paths = {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
        # Seconds until a failure: a slow start, a busy node, no traffic to a server not ready.
        least, most = {"startup": 300, "liveness": 60, "readiness": 0}, {"readiness": 10}
        if is_sidecar(pod, container):  # the trainer waits until the pipelines are ready
            paths = {"startup": "/readyz", "liveness": "/livez"}
            least = {"startup": 600, "liveness": 60}
        names = {item["name"]: item["containerPort"] for item in container.get("ports", [])}
        probes = {
            kind: container[f"{kind}Probe"]
            for kind in ("startup", "liveness", "readiness")
            if f"{kind}Probe" in container
        }
        assert {kind: probe["httpGet"]["path"] for kind, probe in probes.items()} == paths
        for kind, probe in probes.items():
            get = probe["httpGet"]
            assert names.get(get["port"], get["port"]) == int(port(options["http"])), pod.owner
            # Loopback of the node is the pod's only on the node's network.
            assert ("host" in get) == bool(pod.spec.get("hostNetwork"))
            seconds = probe["periodSeconds"] * probe["failureThreshold"]
            assert least[kind] <= seconds <= most.get(kind, seconds), (pod.owner, kind)
            assert probe["timeoutSeconds"] >= (5 if kind == "liveness" else 3)  # the default is 1


# --- what refers to what ---


def test_selectors_choose_pods_of_one_workload(manifests: list[Manifest]) -> None:
    templates = list(pods(manifests))
    for item in manifests:
        spec = item.get("spec", {})
        if item["kind"] in ("Deployment", "StatefulSet"):
            spread = spec["template"]["spec"].get("topologySpreadConstraints", [])
            selectors = [spec["selector"], *(one["labelSelector"] for one in spread)]
            own = spec["template"]["metadata"]["labels"]
            assert all(selects(selector, own) for selector in selectors)
        elif item["kind"] == "PodDisruptionBudget":
            selectors = [spec["selector"]]
        elif item["kind"] == "Service":
            selectors = [{"matchLabels": spec["selector"]}]
        else:
            continue
        for selector in selectors:
            assert selector["matchLabels"].keys() == LABELS
            assert len([pod for pod in templates if selects(selector, pod.labels)]) == 1


@pytest.mark.parametrize("folder", IN_NAMESPACE)
def test_services_have_the_ports_of_their_pods(folder: str) -> None:
    manifests = render(folder)
    for pod in pods(manifests):
        (service,) = [
            item["spec"]
            for item in of_kind("Service", manifests)
            if selects({"matchLabels": item["spec"]["selector"]}, pod.labels)
        ]
        (container,) = pod.containers
        assert {(item["name"], item["port"], item["targetPort"]) for item in service["ports"]} == {
            (item["name"], item["containerPort"], item["name"]) for item in container["ports"]
        }
        # On all addresses of the pod: by default roles listen on loopback.
        assert len([arg for arg in container["args"] if "=0.0.0.0:" in arg]) == 2, pod.owner
        uses_name = "$(POD_NAME)" in str(container["args"])
        assert uses_name == ("POD_NAME" in environment(container))
        if uses_name:
            field = environment(container)["POD_NAME"]["valueFrom"]["fieldRef"]
            assert field["fieldPath"] == "metadata.name"


def test_volumes_are_mounted_and_what_they_name_exists(manifests: list[Manifest]) -> None:
    config_maps = by_name("ConfigMap", manifests)
    for item in config_maps.values():
        for definition in yaml.safe_load(item["data"]["pipelines.yaml"])["pipelines"].values():
            parse(definition)
    created = set(re.findall(r"kubectl create secret generic (\S+)", README))
    claims = {
        claim["metadata"]["name"]
        for item in of_kind("StatefulSet", manifests)
        for claim in item["spec"].get("volumeClaimTemplates", [])
    }
    for pod in pods(manifests):
        volumes = {item["name"]: item for item in pod.spec["volumes"]}
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in config_maps, pod.owner
            if "secret" in volume:
                assert volume["secret"]["secretName"] in created, pod.owner
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]
                assert claim["readOnly"]
                assert f"`{claim['claimName']}`" in README
        mounted = {mount["name"] for one in pod.containers for mount in one["volumeMounts"]}
        assert mounted <= {*volumes, *claims}
        account = pod.spec.get("serviceAccountName", "default")
        assert account in {*by_name("ServiceAccount", manifests), "default"}


# --- each kustomization ---


@pytest.mark.parametrize("folder", IN_NAMESPACE)
def test_a_rollout_and_a_drain_keep_enough_servers(folder: str) -> None:
    manifests = render(folder)
    (deployment,) = of_kind("Deployment", manifests)
    # A new server has trainers before the next one ends.
    ready = deployment["spec"]["minReadySeconds"]
    assert ready > RESOLVE_INTERVAL_SECONDS + DNS_CACHE_SECONDS
    budgets = of_kind("PodDisruptionBudget", manifests)
    for workload in [deployment, *of_kind("StatefulSet", manifests)]:
        labels = workload["spec"]["template"]["metadata"]["labels"]
        found = [one for one in budgets if selects(one["spec"]["selector"], labels)]
        # For a single pod, a budget could only forbid the drain.
        single = workload["kind"] == "StatefulSet" and workload["spec"].get("replicas") == 1
        assert single or len(found) == 1


def test_roles_advertise_names_of_their_services() -> None:
    manifests = render("overlays/data-service")
    services = by_name("Service", manifests)
    dispatcher = "infeed-dispatcher-0.infeed-dispatcher:7472"
    sets = by_name("StatefulSet", manifests)
    for name, item in sets.items():
        assert item["spec"]["serviceName"] == name
        # It connects to its own name before it is ready.
        assert services[name]["spec"]["publishNotReadyAddresses"] is True
    for pod, _, options in roles(manifests):
        name = pod.owner.split()[1]
        if name in sets:
            assert options["advertise"] == f"$(POD_NAME).{name}"
        if name != "infeed-dispatcher":
            assert options["dispatcher"] == dispatcher
    # One pod at a time writes the journal.
    spec = sets["infeed-dispatcher"]["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert claim["spec"]["resources"]["requests"]["storage"]
    (container,) = spec["template"]["spec"]["containers"]
    (path,) = [path for path, item in mounts(container).items() if item["name"] == "journal"]
    assert [arg for arg in container["args"] if arg.startswith(f"--work-dir={path}/")]


@pytest.mark.parametrize("folder", ["trainers", "overlays/trainers", "sidecar"])
def test_a_job_set_has_one_trainer_on_each_tpu_host(folder: str) -> None:
    manifests = render(folder)
    (job_set,), (queue,) = of_kind("JobSet", manifests), of_kind("LocalQueue", manifests)
    # Kueue admits a job only if the queue exists in its namespace.
    assert job_set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queue["metadata"]["name"]
    assert job_set["metadata"]["namespace"] == queue["metadata"]["namespace"]
    assert job_set["spec"]["failurePolicy"]["maxRestarts"] > 0
    (job,) = job_set["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert (job["replicas"], spec["backoffLimit"]) == (1, 0)  # JobSet restarts all hosts
    assert spec["completionMode"] == "Indexed"
    (pod,) = pods([job_set])
    assert_has(pod.spec, TRAINER_POD, folder)
    (trainer,) = pod.spec["containers"]
    world_size = int(environment(trainer)["WORLD_SIZE"])
    assert world_size == spec["parallelism"] == spec["completions"]
    assert environment(trainer)["RANK"]["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    )
    chips = trainer["resources"]["limits"]["google.com/tpu"]
    assert trainer["resources"]["requests"]["google.com/tpu"] == chips
    assert "cloud.google.com/gke-tpu-accelerator" in pod.spec["nodeSelector"]
    topology = pod.spec["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")
    assert world_size * chips == int(topology[0]) * int(topology[1])


def test_trainers_connect_to_the_service_by_name() -> None:
    (service,) = of_kind("Service", render("base"))
    (pod,) = pods(render("trainers"))
    metadata, grpc = service["metadata"], service["spec"]["ports"][0]
    assert grpc["name"] == "grpc"
    name = f"{metadata['name']}.{metadata['namespace']}.svc.cluster.local"
    assert environment(pod.containers[0])["TARGET"] == f"dns:///{name}:{grpc['port']}"


def test_a_sidecar_shares_its_socket_with_the_trainer() -> None:
    ((pod, server, options),) = roles(render("sidecar"))
    _, trainer = pod.containers
    assert is_sidecar(pod, server)
    assert server["restartPolicy"] == "Always"
    assert environment(trainer)["TARGET"] == options["listen"]
    for container in pod.containers:
        assert mounts(container)["/run/infeed"]["name"] == "socket"


def test_a_job_packs_each_part_once() -> None:
    manifests = render("pack")
    (job,) = of_kind("Job", manifests)
    ((pod, container, options),) = roles(manifests)
    assert_has(pod.spec, {**POD, "restartPolicy": "Never"}, pod.owner)
    assert_has(container, CONTAINER, pod.owner)
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == options["parts"]
    writable = {path for path, item in mounts(container).items() if not item.get("readOnly")}
    assert writable == {options["dest"], "/tmp"}
    volumes = {item["name"]: item for item in pod.spec["volumes"]}
    config = volumes[mounts(container)["/config"]["name"]]["configMap"]["name"]
    text = by_name("ConfigMap", manifests)[config]["data"]["pipelines.yaml"]
    assert options["source"] == "/config/pipelines.yaml"
    assert options["pipeline"] in yaml.safe_load(text)["pipelines"]
    assert "`pack`" in README


# --- the autoscaler ---


def test_autoscaler_sets_one_server_for_each_desired_one() -> None:
    (scaled,) = of_kind("ScaledObject", render("overlays/production"))
    (trigger,) = scaled["spec"]["triggers"]
    assert_has(trigger, {"type": "prometheus", "metricType": "AverageValue"}, "trigger")
    metadata = trigger["metadata"]
    assert_has(metadata, {"threshold": "1", "activationThreshold": "0"}, "trigger.metadata")
    # Every server has the number for all trainers: their sum would be too many.
    assert metadata["query"] == 'max(infeed_desired_servers{namespace="infeed"})'
    assert re.match(r"http://prometheus\.monitoring\.svc:\d+$", metadata["serverAddress"])
