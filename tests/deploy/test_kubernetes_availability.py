"""Manifests of deploy/kubernetes: replicas, rollouts, placement, probes, storage, autoscaler."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from tests.deploy.manifests import (
    ROOT,
    Manifest,
    all_pods,
    infeed_containers,
    of_kind,
    pods,
    render,
    selects,
)

from infeed.prefetch.prefetcher import RESOLVE_INTERVAL_SECONDS

DNS_CACHE_SECONDS = 30
"""Seconds for which a cluster's DNS caches a name, by default."""

IN_NAMESPACE = ("base", "overlays/production", "overlays/data-service")


def workloads(folder: str) -> list[Manifest]:
    manifests = render(folder)
    return [*of_kind("Deployment", manifests), *of_kind("StatefulSet", manifests)]


def seconds_until_failure(probe: Manifest) -> int:
    return int(probe["periodSeconds"]) * int(probe["failureThreshold"])


# --- replicas, rollouts and disruptions ---


@pytest.mark.parametrize("folder", IN_NAMESPACE)
def test_a_rollout_keeps_the_number_of_servers_that_trainers_use(folder: str) -> None:
    (deployment,) = of_kind("Deployment", render(folder))
    spec = deployment["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    # A new server has trainers before the next one ends.
    assert spec["minReadySeconds"] > RESOLVE_INTERVAL_SECONDS + DNS_CACHE_SECONDS


@pytest.mark.parametrize("folder", IN_NAMESPACE)
def test_a_drain_evicts_one_pod_of_several_at_a_time(folder: str) -> None:
    manifests = render(folder)
    budgets = of_kind("PodDisruptionBudget", manifests)
    for workload in workloads(folder):
        if workload["spec"].get("replicas") == 1 and workload["kind"] == "StatefulSet":
            continue  # a budget could only forbid the drain
        labels = workload["spec"]["template"]["metadata"]["labels"]
        (budget,) = [one["spec"] for one in budgets if selects(one["spec"]["selector"], labels)]
        assert budget["maxUnavailable"] == 1
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("folder", IN_NAMESPACE)
def test_no_selector_chooses_the_pods_of_another_workload(folder: str) -> None:
    manifests = render(folder)
    templates = list(pods(manifests))
    budgets = [item["spec"]["selector"] for item in of_kind("PodDisruptionBudget", manifests)]
    for workload in workloads(folder):
        spread = workload["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
        budgets += [workload["spec"]["selector"], *(one["labelSelector"] for one in spread)]
    for selector in budgets:
        assert selector["matchLabels"].keys() == {
            "app.kubernetes.io/name",
            "app.kubernetes.io/component",
        }
        assert len([pod for pod in templates if selects(selector, pod.labels)]) == 1


def test_one_pod_at_a_time_writes_the_journal() -> None:
    (dispatcher,) = [
        workload
        for workload in workloads("overlays/data-service")
        if workload["metadata"]["name"] == "infeed-dispatcher"
    ]
    (claim,) = dispatcher["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert claim["spec"]["resources"]["requests"]["storage"]
    (container,) = dispatcher["spec"]["template"]["spec"]["containers"]
    (work_dir,) = [arg for arg in container["args"] if arg.startswith("--work-dir=")]
    (mount,) = [
        volumeMount for volumeMount in container["volumeMounts"] if volumeMount["name"] == "journal"
    ]
    assert work_dir.startswith(f"--work-dir={mount['mountPath']}/")


# --- placement ---


def test_a_job_set_places_one_trainer_on_each_host_of_its_slice() -> None:
    for folder in ("trainers", "sidecar"):
        (job_set,) = of_kind("JobSet", render(folder))
        assert job_set["spec"]["failurePolicy"]["maxRestarts"] > 0
        annotations = job_set["metadata"]["annotations"]
        assert annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"] == (
            "cloud.google.com/gke-nodepool"
        )
        (job,) = job_set["spec"]["replicatedJobs"]
        spec = job["template"]["spec"]
        assert (job["replicas"], spec["backoffLimit"]) == (1, 0)  # JobSet restarts all hosts
        (pod,) = pods([job_set])
        assert pod.spec["restartPolicy"] == "Never"
        (trainer,) = pod.spec["containers"]
        chips = trainer["resources"]["limits"]["google.com/tpu"]
        assert trainer["resources"]["requests"]["google.com/tpu"] == chips
        selector = pod.spec["nodeSelector"]
        assert "cloud.google.com/gke-tpu-accelerator" in selector
        rows, columns = map(int, selector["cloud.google.com/gke-tpu-topology"].split("x"))
        assert spec["parallelism"] * chips == rows * columns
        (rank,) = [item for item in trainer["env"] if item["name"] == "RANK"]
        assert rank["valueFrom"]["fieldRef"]["fieldPath"] == (
            "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        )


# --- containers ---


def test_probes_allow_a_slow_start_and_gate_traffic() -> None:
    for folder, pod in all_pods():
        for container in infeed_containers(pod):
            # The trainer beside a server waits until its pipelines are open, not only the process.
            start = 600 if folder == "sidecar" else 300
            assert seconds_until_failure(container["startupProbe"]) >= start, pod.owner
            assert container["livenessProbe"]["timeoutSeconds"] >= 5, pod.owner
            assert seconds_until_failure(container["livenessProbe"]) >= 60, pod.owner
            if folder != "sidecar":
                assert seconds_until_failure(container["readinessProbe"]) <= 10, pod.owner
            for kind in ("startup", "readiness", "liveness"):
                probe = container.get(f"{kind}Probe", {"timeoutSeconds": 3})
                assert probe["timeoutSeconds"] >= 3, pod.owner  # the default is 1


def test_what_a_server_writes_is_below_a_writable_mount() -> None:
    for _, pod in all_pods():
        for container in infeed_containers(pod):
            if container["command"] != ["infeed", "serve"]:
                continue
            (cache,) = container["env"]
            assert cache["name"] == "INFEED_CACHE_DIR"
            assert cache["value"].startswith("/tmp/"), pod.owner
            assert container["workingDir"] == "/tmp", pod.owner


def test_the_pipelines_file_is_a_key_of_the_mounted_config_map() -> None:
    for folder, pod in all_pods():
        maps = {item["metadata"]["name"]: item for item in of_kind("ConfigMap", render(folder))}
        for container in infeed_containers(pod):
            if container["command"] != ["infeed", "serve"]:
                continue
            path, _, key = container["args"][0].rpartition("/")
            (mount,) = [
                volumeMount
                for volumeMount in container["volumeMounts"]
                if volumeMount["mountPath"] == path
            ]
            (volume,) = [item for item in pod.spec["volumes"] if item["name"] == mount["name"]]
            assert key in maps[volume["configMap"]["name"]]["data"]


def test_pods_have_the_images_user_and_no_service_variables() -> None:
    for folder, pod in all_pods():
        security = pod.spec["securityContext"]
        assert (security["runAsUser"], security["runAsGroup"]) == (10001, 10001)
        if folder != "trainers":  # volumes, sockets and Secrets belong to the group
            assert security["fsGroup"] == 10001, pod.owner
        # For a Service `infeed` they would begin with INFEED_, as options do.
        assert pod.spec["enableServiceLinks"] is False, pod.owner


@pytest.mark.parametrize("folder", IN_NAMESPACE)
def test_services_have_the_ports_of_their_pods(folder: str) -> None:
    manifests = render(folder)
    services = of_kind("Service", manifests)
    for pod in pods(manifests):
        (service,) = [
            item["spec"]
            for item in services
            if selects({"matchLabels": item["spec"]["selector"]}, pod.labels)
        ]
        (container,) = pod.containers
        assert service["selector"].keys() == {
            "app.kubernetes.io/name",
            "app.kubernetes.io/component",
        }
        assert {(item["name"], item["port"], item["targetPort"]) for item in service["ports"]} == {
            (port["name"], port["containerPort"], port["name"]) for port in container["ports"]
        }
        # On all addresses of the pod: by default roles listen on loopback.
        for name in ("listen", "http"):
            (address,) = [arg for arg in container["args"] if arg.startswith(f"--{name}=")]
            assert address.startswith(f"--{name}=0.0.0.0:"), pod.owner
        for item in container.get("env", []):
            if item["name"] == "POD_NAME":
                assert item["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        uses = "$(POD_NAME)" in str(container["args"])
        assert uses == ("POD_NAME" in [item["name"] for item in container.get("env", [])])


# --- the autoscaler ---


def autoscaler() -> dict[str, Any]:
    (scaled,) = of_kind("ScaledObject", render("overlays/production"))
    return dict(scaled["spec"])


def test_autoscaler_sets_one_server_for_each_desired_one() -> None:
    spec = autoscaler()
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
    metadata = trigger["metadata"]
    assert (metadata["threshold"], metadata["activationThreshold"]) == ("1", "0")
    # Every server has the number for all trainers: their sum would be too many.
    assert re.fullmatch(r'max\(infeed_desired_servers\{namespace="infeed"\}\)', metadata["query"])
    assert re.match(r"http://prometheus\.monitoring\.svc:\d+$", metadata["serverAddress"])


def test_prometheus_sets_the_label_of_the_autoscalers_query() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/kubernetes.yaml").read_text())
    (scrape,) = config["scrape_configs"]
    rules = scrape["relabel_configs"]
    targets = {item["target_label"]: item for item in rules if "target_label" in item}
    assert targets["namespace"]["source_labels"] == ["__meta_kubernetes_namespace"]
    kept = [
        (item["source_labels"], item["regex"]) for item in rules if item.get("action") == "keep"
    ]
    # One target for each pod, although it has several ports.
    assert kept == [(["__meta_kubernetes_pod_container_port_name"], "http")]
    dropped = [rule["regex"] for rule in rules if rule.get("action") == "drop"]
    assert dropped == ["Succeeded|Failed"]
    (discovery,) = scrape["kubernetes_sd_configs"]
    (selector,) = discovery["selectors"]
    name, _, value = selector["label"].partition("=")
    for folder in IN_NAMESPACE:
        assert all(pod.labels[name] == value for pod in pods(render(folder)))
