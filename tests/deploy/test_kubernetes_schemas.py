"""Manifests of deploy/kubernetes against the schemas of Kubernetes, JobSet, KEDA and Kueue."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.manifests import JOBS, KUSTOMIZATIONS, Manifest, of_kind, render

VERSIONS = ("1.33", "1.37")
"""The oldest version that has all fields of the manifests (native sidecars), and the newest."""

DEFINITIONS = {
    "JobSet": "jobset.x-k8s.io_jobsets.yaml",
    "ScaledObject": "keda.sh_scaledobjects.yaml",
    "LocalQueue": "kueue.x-k8s.io_localqueues.yaml",
}
"""Kind → file with its CustomResourceDefinition, as in the repository of its project."""

SCHEMAS = "INFEED_TEST_SCHEMAS"
"""Environment variable: the folder of those files, which infeed does not distribute."""


@cache
def crd(kind: str) -> dict[str, Any]:
    """Returns version → schema of a kind of JobSet, KEDA or Kueue. Skips without the files."""
    folder = os.environ.get(SCHEMAS)
    if not folder:
        pytest.skip(f"{SCHEMAS} is not set to a folder with {', '.join(DEFINITIONS.values())}")
    definition = yaml.safe_load(Path(folder, DEFINITIONS[kind]).read_text())
    return {
        version["name"]: closed(version["schema"]["openAPIV3Schema"])
        for version in definition["spec"]["versions"]
    }


def closed(schema: Any) -> Any:
    """Returns the schema with the fields it lists as the only ones: the API server drops others."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: closed(item) for name, item in schema.items()}
    fields = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if fields and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    return result


def check(manifest: Manifest, version: str) -> None:
    """Raises when a manifest does not fit the schema of its kind."""
    if manifest["kind"] in DEFINITIONS:
        jsonschema = pytest.importorskip("jsonschema")
        _, _, api_version = manifest["apiVersion"].partition("/")
        schema = crd(manifest["kind"])[api_version]
        # Kubernetes checks what all objects have; a definition leaves it open.
        schema["properties"]["metadata"] = {"type": "object"}
        jsonschema.Draft202012Validator(schema).validate(manifest)
        return
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", [*KUSTOMIZATIONS, *JOBS])
def test_manifests_of_kubernetes_fit_its_schemas(folder: str, version: str) -> None:
    own = [item for item in render(folder) if item["kind"] not in DEFINITIONS]
    for manifest in own:
        check(manifest, version)


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_manifests_of_other_projects_fit_their_definitions(kind: str) -> None:
    found = [item for folder in KUSTOMIZATIONS for item in of_kind(kind, render(folder))]
    assert found
    for manifest in found:
        check(manifest, VERSIONS[-1])
