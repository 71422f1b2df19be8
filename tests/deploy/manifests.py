"""Manifests of deploy/kubernetes as `kubectl kustomize` renders them, and their pods."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.harness.waiting import TIMEOUT_SECONDS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
KUSTOMIZATIONS = (
    *("base", "overlays/production", "overlays/data-service"),
    *("trainers", "overlays/trainers", "sidecar"),
)
"""The folders that a user applies."""

JOBS = ("pack",)
"""The folders of what runs once."""

IN_NAMESPACE = ("base", "overlays/production", "overlays/data-service")
"""The folders of servers and roles."""

Manifest = dict[str, Any]


class Pod(NamedTuple):
    """The template of a pod."""

    owner: str
    """Kind and name of the object that creates it."""
    labels: dict[str, str]
    spec: Manifest

    @property
    def containers(self) -> list[Manifest]:
        """Its containers, also those that run beside (native sidecars)."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


@cache
def _render(folder: str) -> str:
    for command in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(command[0]):
            result = subprocess.run(
                [*command, str(FOLDER / folder)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            assert result.returncode == 0, result.stderr
            assert "deprecated" not in result.stderr, result.stderr
            return result.stdout
    pytest.skip("neither kubectl nor kustomize is installed, so nothing renders the manifests")


def render(folder: str) -> list[Manifest]:
    """Returns the objects of a kustomization. Skips the test without a program that renders."""
    return list(yaml.safe_load_all(_render(folder)))


def pods(manifests: list[Manifest]) -> Iterator[Pod]:
    """Yields the template of each object that creates pods."""
    for manifest in manifests:
        owner = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] in ("Deployment", "StatefulSet", "Job"):
            templates = [manifest["spec"]["template"]]
        elif manifest["kind"] == "JobSet":
            jobs = manifest["spec"]["replicatedJobs"]
            templates = [job["template"]["spec"]["template"] for job in jobs]
        else:
            continue
        for template in templates:
            yield Pod(owner, template["metadata"]["labels"], template["spec"])


def infeed_containers(pod: Pod) -> list[Manifest]:
    """Returns the containers that run a role of infeed, not trainers."""
    return [
        container for container in pod.containers if container["image"].startswith("infeed-server")
    ]


def of_kind(kind: str, manifests: list[Manifest]) -> list[Manifest]:
    """Returns the objects of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    """Returns whether a label selector of Kubernetes matches these labels."""
    wanted = selector.get("matchLabels", {})
    expressions = selector.get("matchExpressions", [])
    assert all(item["operator"] == "In" for item in expressions), "only In is implemented here"
    return wanted.items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )
