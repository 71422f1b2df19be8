"""The repository itself: what is generated, pinned or said twice agrees."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tomllib
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import infeed

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = [".ci/run", "tools/stubs.sh", "deploy/check.sh"]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads(text("pyproject.toml"))["project"]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load(text("deploy/docker-compose.yaml"))["services"]


@pytest.fixture(scope="module")
def trainer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_trainer", ROOT / "deploy/trainer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stubs_are_what_the_protos_generate():
    done = subprocess.run(
        [ROOT / "tools/stubs.sh", "check"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_the_same_everywhere(project: dict[str, Any]):
    assert infeed.__version__ == project["version"]


def test_every_direct_requirement_is_pinned_within_its_range(project: dict[str, Any]):
    lines = [line for line in text("requirements/dev.txt").splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    asked = list(project["dependencies"])
    for extra in ("server", "tensorflow", "cli", "dev"):
        asked += project["optional-dependencies"][extra]
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        if name != "infeed":
            assert requirement.specifier.contains(pins.get(name, "none")), requirement


def test_documents_name_only_make_targets_that_exist():
    targets = set(re.findall(r"^([a-z][a-z-]*):", text("Makefile"), re.MULTILINE))
    for document in ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]:
        # Code only: prose has "make" as a verb.
        code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text(document), re.DOTALL))
        named = set(re.findall(r"\bmake ([a-z][a-z-]*)", code))
        assert named <= targets, f"{document} names {named - targets}"


def test_the_readme_shows_the_demo():
    assert "make demo" in text("README.md")


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run(script: str):
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / script], check=True, timeout=30)


def test_compose_and_its_override_agree_with_the_dockerfile(compose: dict[str, Any]):
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text("Dockerfile"), re.MULTILINE))
    override = yaml.safe_load(text("deploy/docker-compose.host.yaml"))["services"]
    assert set(compose) == set(override) == {"server", "trainer"}
    for service in compose.values():
        assert service["build"]["target"] in stages
    assert compose["trainer"]["depends_on"] == {"server": {"condition": "service_healthy"}}


def test_the_trainer_asks_for_a_pipeline_that_is_served(compose: dict[str, Any]):
    served = yaml.safe_load(text("deploy/pipelines.yaml"))["pipelines"]
    assert compose["trainer"]["environment"]["PIPELINE"] in served


@settings(max_examples=50, deadline=None)
@given(positions=st.integers(0, 200), stride=st.integers(1, 20), world_size=st.integers(1, 6))
def test_the_trainer_knows_each_ranks_share(
    trainer: ModuleType, positions: int, stride: int, world_size: int
):
    owners = [position // stride % world_size for position in range(positions)]
    for rank in range(world_size):
        assert trainer.rank_share(positions, stride, rank, world_size) == owners.count(rank)
