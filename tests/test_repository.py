"""The repository itself: what is generated, pinned or said twice agrees."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tomllib
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import infeed
from infeed.spec import Guarantee

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = [".ci/run", "tools/stubs.sh", "deploy/check.sh"]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads(text("pyproject.toml"))["project"]


def compose(shape: str) -> dict[str, Any]:
    """The services of a Compose file, by name, where no variable is set that has a default."""
    written = text(f"deploy/docker-compose{shape}.yaml")
    return yaml.safe_load(re.sub(r"\$\{\w+:-(.*?)\}", r"\1", written))["services"]


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


@pytest.mark.parametrize("shape", ["", ".service"])
def test_compose_and_its_override_agree_with_the_dockerfile(shape: str):
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text("Dockerfile"), re.MULTILINE))
    services, override = compose(shape), compose(f"{shape}.host")
    assert set(services) == set(override)
    built = {
        each["image"]: each["build"]["target"] for each in services.values() if "build" in each
    }
    assert set(built.values()) <= stages
    assert {each["image"] for each in services.values()} == set(built)
    for name, service in services.items():
        assert ("build" in service) == ("build" in override[name]), name
        assert override[name]["network_mode"] == "host"


def test_the_trainer_waits_for_who_serves_it():
    for shape, server in (("", "server"), (".service", "gateway")):
        trainer = compose(shape)["trainer"]
        assert trainer["depends_on"] == {server: {"condition": "service_healthy"}}
        assert trainer["environment"]["TARGET"] == f"{server}:8470"


@pytest.mark.parametrize("shape", [".service", ".service.host"])
def test_the_containers_of_the_data_service_find_each_other(shape: str):
    services = compose(shape)
    options = {
        name: dict(zip(each["command"], [*each["command"][1:], ""], strict=True))
        for name, each in services.items()
        if name != "trainer"
    }
    own = "127.0.0.1" if "host" in shape else None
    where = {
        name: f"{own or name}:{chosen['--listen'].rpartition(':')[2]}"
        for name, chosen in options.items()
    }
    assert options["worker"]["--dispatcher"] == where["dispatcher"]
    assert options["gateway"]["--dispatcher"] == where["dispatcher"]
    assert services["trainer"]["environment"]["TARGET"] == where["gateway"]
    for name, chosen in options.items():
        assert chosen["--listen"].startswith("127.0.0.1:" if own else "0.0.0.0:")
        assert ("--insecure" in chosen) == (own is None), name


@pytest.mark.parametrize("shape", [".service", ".service.host"])
def test_health_is_asked_for_where_it_is_told(shape: str):
    for name, service in compose(shape).items():
        if name != "trainer":
            command = service["command"]
            http = command[command.index("--http") + 1]
            asked = re.search(
                r"http://127\.0\.0\.1:(\d+)/readyz", service["healthcheck"]["test"][-1]
            )
            assert (asked[1] if asked else "off") == http.rpartition(":")[2], name


@pytest.mark.parametrize("shape", ["", ".service"])
def test_the_trainer_asks_for_a_pipeline_that_is_served(shape: str):
    served = yaml.safe_load(text("deploy/pipelines.yaml"))["pipelines"]
    assert compose(shape)["trainer"]["environment"]["PIPELINE"] in served


def test_the_trainer_counts_only_what_can_be_counted(trainer: ModuleType):
    feed = SimpleNamespace(name="x", sample_count=8, guarantee=Guarantee())
    assert trainer.countable(feed, 0, 2) == 8
    feed.sample_count = None
    with pytest.raises(SystemExit, match="set SAMPLES"):
        trainer.countable(feed, 0, 1)
    assert trainer.countable(feed, 9, 1) == 9
    feed.guarantee = Guarantee("none", "at_most_once", "none")
    assert trainer.countable(feed, 9, 1) == 9
    with pytest.raises(SystemExit, match="count with WORLD_SIZE=1"):
        trainer.countable(feed, 9, 2)


def test_the_trainer_takes_no_sample_that_should_not_be(trainer: ModuleType):
    ids = np.array([2, 0, -1])
    batch = SimpleNamespace(sample_ids=ids, mask=ids >= 0)
    assert trainer.count_samples([batch], 3).tolist() == [1, 0, 1]
    with pytest.raises(SystemExit, match="sample 2 came"):
        trainer.count_samples([batch], 2)


@settings(max_examples=50, deadline=None)
@given(positions=st.integers(0, 200), stride=st.integers(1, 20), world_size=st.integers(1, 6))
def test_the_trainer_knows_each_ranks_share(
    trainer: ModuleType, positions: int, stride: int, world_size: int
):
    owners = [position // stride % world_size for position in range(positions)]
    for rank in range(world_size):
        assert trainer.rank_share(positions, stride, rank, world_size) == owners.count(rank)
