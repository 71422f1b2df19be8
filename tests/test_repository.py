"""Consistency of the repository: stubs, versions, pins, scripts, containers."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools import pin

import infeed
from infeed.shared.spec import Guarantee
from infeed_server.runtime.options import DEFAULT_HTTP, DEFAULT_LISTEN

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = (
    *("README.md", "Dockerfile", "client", "server", "plugins"),
    *("proto", "docs", "deploy", "examples"),
)
TAKEN = {*range(8431, 8435), 8466, 8470, 8471, 8476, 8482, *range(29000, 29007)}
"""Ports of TPU runtimes and of JAX, which share the network of a TPU VM with infeed."""

SCRIPTS = [".ci/run", "tools/stubs.sh", "deploy/check.sh", "deploy/tpu-vm/startup.sh"]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads(text("pyproject.toml"))["project"]


@pytest.fixture(scope="module")
def trainer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_trainer", ROOT / "deploy/trainer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_default_sample_or_document_has_a_port_of_a_tpu_runtime() -> None:
    assert (DEFAULT_LISTEN, DEFAULT_HTTP) == ("127.0.0.1:7470", "127.0.0.1:7471")
    files = [file for name in SHIPPED for file in (ROOT / name, *(ROOT / name).rglob("*"))]
    found: set[int] = set()
    for file in files:
        if file.is_file() and file.suffix not in (".pyc", ".svg", ".png", ".webp"):
            content = file.read_text(encoding="utf-8")
            numbers = re.findall(r"(?<![\w.,])\d{4,5}(?![\w.,]\d|\w)", content)
            assert not set(map(int, numbers)) & TAKEN, file
            found |= set(map(int, numbers))
    assert {7470, 7471, 7472, 7473, 7474, 7475} <= found


def test_readme_has_the_versions_and_extras_of_the_project(project: dict[str, Any]):
    readme, contributing = text("README.md"), text("CONTRIBUTING.md")
    installing = text("docs/quickstart.md")
    assert "make demo" in readme
    python = project["requires-python"].removeprefix(">=")
    assert f"Version {infeed.__version__} is not on PyPI" in readme
    assert f"With Python {python} or newer" in installing
    assert f"also run on Python {python}" in contributing
    clone = re.search(r"sys.version_info >= \((\d+), (\d+)\)", text("Makefile"))
    assert f"Python {clone[1]}.{clone[2]} or newer" in readme
    extras = project["optional-dependencies"]
    documented = set(re.findall(r"infeed\[(\w+)\]", installing))
    for_development = {"dev"}
    assert documented == set(extras) - for_development
    (tensorflow,) = map(Requirement, extras["tensorflow"])
    assert extras["tensorflow"][0] in extras["server"]
    named = re.findall(r"TensorFlow is (\d+\.\d+)", installing)
    assert named
    assert all(tensorflow.specifier.contains(f"{version}.0") for version in named)


def test_the_extra_of_the_client_has_what_its_commands_import(project: dict[str, Any]):
    # Pillow is for `peek --png`; the server's extra has all of them, and the page of `loadtest`.
    extras = project["optional-dependencies"]
    names = {Requirement(item).name for item in extras["cli"]}
    assert names == {"pillow", "rich", "typer"}
    assert "infeed[cli]" in extras["loadtest"]
    assert "infeed[loadtest]" in extras["server"]


def test_every_direct_requirement_is_pinned_within_its_range(project: dict[str, Any]):
    lines = [line for line in text("requirements/dev.txt").splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    requirements = list(project["dependencies"])
    for extra in ("server", "tensorflow", "cli", "dev"):
        requirements += project["optional-dependencies"][extra]
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if name != "infeed":
            assert requirement.specifier.contains(pins.get(name, "none")), requirement


def test_every_pin_installs_on_the_oldest_python_of_make(monkeypatch):
    newer = SimpleNamespace(metadata={"Name": "x", "Requires-Python": ">=3.11.5"}, version="1")
    unlimited = SimpleNamespace(metadata={"Name": "y", "Requires-Python": None}, version="1")
    assert pin.too_new() == []

    monkeypatch.setattr(pin, "distributions", lambda: [newer, unlimited])
    assert pin.too_new() == ["x 1 needs Python >=3.11.5"]


def test_documented_make_targets_exist():
    targets = set(re.findall(r"^([a-z][a-z-]*):", text("Makefile"), re.MULTILINE))
    docs = [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")]
    for document in ["README.md", "CONTRIBUTING.md", *docs]:
        # Code only: in prose, "make" is also a verb.
        code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text(document), re.DOTALL))
        documented = set(re.findall(r"\bmake ([a-z][a-z-]*)", code))
        assert documented <= targets, f"{document} has {documented - targets}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_is_executable(script: str):
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / script], check=True, timeout=30)


def test_trainer_of_deploy_takes_the_options_for_tls_and_tokens(
    trainer: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    assert trainer.security() == {}
    token = tmp_path / "token"
    token.write_text("first\n")
    monkeypatch.setenv("INFEED_TLS_CA", "ca.pem")
    monkeypatch.setenv("INFEED_TOKEN_FILE", str(token))
    options = trainer.security()
    assert options["tls"] == infeed.TLS(ca="ca.pem")
    assert options["token"]() == "first"
    token.write_text("renewed\n")
    assert options["token"]() == "renewed"


def test_trainer_requires_a_known_sample_count(trainer: ModuleType):
    feed = SimpleNamespace(name="x", sample_count=8, guarantee=Guarantee())
    assert trainer.require_sample_count(feed, 0, 2) == 8
    feed.sample_count = None
    with pytest.raises(SystemExit, match="set SAMPLES"):
        trainer.require_sample_count(feed, 0, 1)
    assert trainer.require_sample_count(feed, 9, 1) == 9
    feed.guarantee = Guarantee("none", "at_most_once", "none")
    assert trainer.require_sample_count(feed, 9, 1) == 9
    with pytest.raises(SystemExit, match="count with WORLD_SIZE=1"):
        trainer.require_sample_count(feed, 9, 2)


def test_trainer_refuses_an_unknown_sample(trainer: ModuleType):
    ids = np.array([2, 0, -1])
    batch = SimpleNamespace(sample_ids=ids, mask=ids >= 0)
    assert trainer.count_samples([batch], 3).tolist() == [1, 0, 1]
    with pytest.raises(SystemExit, match="sample 2 delivered"):
        trainer.count_samples([batch], 2)
