"""The way from an empty project in docs/kubernetes.md: its edits and its quota."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import yaml
from tests.deploy.manifests import FOLDER, of_kind, pods, render
from tests.harness import doc_blocks

NAMES = {"REGISTRY": "registry/mine", "TAG": "7", "PROJECT": "mine", "RANGE": "10.1.0.0/20"}


def test_edits_name_images_bucket_and_nodes(tmp_path: Path) -> None:
    (block,) = [one for one in doc_blocks.read("docs/kubernetes.md") if "sed -i" in one.code]
    folder = tmp_path / "deploy/kubernetes"
    shutil.copytree(FOLDER, folder)
    edits = "\n".join(line for line in block.code.splitlines() if line.startswith(("cd ", "sed ")))
    script = ["bash", "-euc", edits]
    subprocess.run(script, cwd=tmp_path, env={**os.environ, **NAMES}, check=True)
    for name, role in (("base", "server"), ("trainers", "trainer")):
        (image,) = yaml.safe_load((folder / name / "kustomization.yaml").read_text())["images"]
        assert (image["newName"], image["newTag"]) == (f"registry/mine/infeed-{role}", "7")
    pipelines = yaml.safe_load((folder / "pipelines/pipelines.yaml").read_text())["pipelines"]
    source = {"images": "gs://mine-photos", "labels": "gs://mine-photos/labels.csv"}
    assert pipelines["images"]["source"] == source
    spec = yaml.safe_load((folder / "base/servers.yaml").read_text())["spec"]["template"]["spec"]
    volumes = [volume["name"] for volume in spec["volumes"]]
    assert volumes == ["config", "tmp"]
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == volumes
    assert "{cidr: 10.1.0.0/20}" in (folder / "base/network.yaml").read_text()


def test_quota_admits_the_job() -> None:
    flavor, queue = yaml.safe_load_all((FOLDER / "queue/cluster-queue.yaml").read_text())
    (group,) = queue["spec"]["resourceGroups"]
    (entry,) = group["flavors"]
    assert entry["name"] == flavor["metadata"]["name"]
    quota = {item["name"]: str(item["nominalQuota"]) for item in entry["resources"]}
    assert list(quota) == group["coveredResources"]
    manifests = render("trainers")
    (local,) = of_kind("LocalQueue", manifests)
    assert queue["metadata"]["name"] == local["spec"]["clusterQueue"]
    (pod,) = pods(manifests)
    assert flavor["spec"]["nodeLabels"].items() <= pod.spec["nodeSelector"].items()
    (trainer,) = pod.spec["containers"]
    for name, value in trainer["resources"]["requests"].items():
        amount, unit = str(value).removesuffix("Gi"), "Gi" if str(value).endswith("Gi") else ""
        assert quota[name] == f"{4 * int(amount)}{unit}"
