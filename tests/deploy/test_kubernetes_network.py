"""NetworkPolicies of deploy/kubernetes: the peers that they admit to each role and port."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

import pytest
from tests.deploy.manifests import IN_NAMESPACE, Manifest, Pod, of_kind, pods, render, selects

NAMESPACE = "infeed"

TPU_NODE = "10.128.0.7"
"""A trainer on the network of its node has the address of the node, and no labels."""


class Peer(NamedTuple):
    """A source of connections: a pod with its namespace, or an address."""

    namespace: str = ""
    labels: dict[str, str] = {}  # noqa: RUF012 - never changed
    address: str = ""


def role(component: str, namespace: str = NAMESPACE) -> Peer:
    labels = {"app.kubernetes.io/name": "infeed", "app.kubernetes.io/component": component}
    return Peer(namespace, labels)


PEERS = {
    "trainer": Peer("training", {"infeed-trainer": "true"}),
    "TPU node": Peer(address=TPU_NODE),
    "monitoring": Peer("monitoring", {"app": "prometheus"}),
    "server": role("server"),
    "dispatcher": role("dispatcher"),
    "worker": role("worker"),
    "roles of another namespace": role("server", "elsewhere"),
    "another pod of the namespace": Peer(NAMESPACE, {"app": "other"}),
    "another pod": Peer("elsewhere", {"app": "other"}),
    "another address": Peer(address="192.0.2.1"),
}


def matches(entry: Manifest, peer: Peer) -> bool:
    """Returns whether an entry of a rule's `from` matches a peer."""
    if "ipBlock" in entry:
        network = ip_network(entry["ipBlock"]["cidr"])
        return bool(peer.address) and ip_address(peer.address) in network
    if peer.address:
        return False
    if "namespaceSelector" in entry:
        names = {"kubernetes.io/metadata.name": peer.namespace}
        if not selects(entry["namespaceSelector"], names):
            return False
    elif peer.namespace != NAMESPACE:
        return False
    return selects(entry.get("podSelector", {}), peer.labels)


def admitted(policies: list[Manifest], pod: Pod, port: str) -> set[str]:
    """Returns the names of the peers that may connect to a port of a pod."""
    chosen = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == NAMESPACE
        and selects(policy["spec"]["podSelector"], pod.labels)
        and "Ingress" in policy["spec"]["policyTypes"]
    ]
    if not chosen:  # no policy: every peer may connect
        return set(PEERS)
    rules: list[Any] = [
        rule
        for spec in chosen
        for rule in spec.get("ingress", [])
        if "ports" not in rule or {"protocol": "TCP", "port": port} in rule["ports"]
    ]
    return {
        name
        for name, peer in PEERS.items()
        if any(
            not rule.get("from") or any(matches(e, peer) for e in rule["from"]) for rule in rules
        )
    }


@pytest.mark.parametrize("folder", IN_NAMESPACE)
def test_only_trainers_reach_batches_and_monitoring_the_control(folder: str) -> None:
    manifests = render(folder)
    policies = of_kind("NetworkPolicy", manifests)
    (server,) = pods(of_kind("Deployment", manifests))
    assert admitted(policies, server, "grpc") == {"trainer", "TPU node"}
    assert admitted(policies, server, "http") == {"monitoring"}
    assert admitted(policies, server, "other") == set()


def test_only_roles_reach_the_dispatcher_and_the_workers() -> None:
    manifests = render("overlays/data-service")
    policies = of_kind("NetworkPolicy", manifests)
    roles = list(pods(of_kind("StatefulSet", manifests)))
    assert len(roles) == 2
    for pod in roles:
        assert admitted(policies, pod, "grpc") == {"server", "dispatcher", "worker"}, pod.owner
        assert admitted(policies, pod, "http") == {"monitoring"}, pod.owner
        assert admitted(policies, pod, "other") == set(), pod.owner
