"""Checks of tools/package.py: they pass what a release has, and name what it lacks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tools import package

import infeed

pytest.importorskip("hatchling")

ADDRESS = "https://example.com/owner/infeed"


def metadata(root: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "hatchling", "metadata"]
    return json.loads(subprocess.check_output(command, cwd=root, timeout=120))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for path in ("pyproject.toml", "README.md", "LICENSE", "client/infeed/__init__.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package.ROOT / path, tmp_path / path)
    return tmp_path


def test_version_has_one_place() -> None:
    assert metadata(package.ROOT)["version"] == infeed.__version__


def test_citation_has_the_version() -> None:
    citation = yaml.safe_load((package.ROOT / "CITATION.cff").read_text())
    assert citation["version"] == infeed.__version__
    assert citation["license"] == "Apache-2.0"


def test_readme_of_the_index_has_no_relative_link(project: Path) -> None:
    with (project / "README.md").open("a") as readme:
        readme.write("[![a picture](docs/p.png)](docs/p.md) ![another](docs/q.svg)\n")
    text = metadata(project)["readme"]["text"]
    assert text.endswith("a picture another\n")
    assert package.check_readme(text, None) == []
    (problem,) = package.check_readme(text, ADDRESS)
    assert "no link to" in problem


@pytest.mark.parametrize("link", ["[a](b.md)", "![a](b.png)", '<img src="b.png">', "[a](#b)"])
def test_relative_link_is_a_problem(link: str) -> None:
    (problem,) = package.check_readme(link, None)
    assert "relative" in problem


def test_every_action_is_pinned_by_a_commit() -> None:
    files = sorted((package.ROOT / ".github/workflows").glob("*.yml"))
    uses = [line for path in files for line in path.read_text().splitlines() if "uses:" in line]
    foreign = [line for line in uses if "./.github/" not in line]
    assert len(foreign) > 5
    assert [line for line in foreign if not re.search(r"@[0-9a-f]{40} # v[\d.]+$", line)] == []


def test_workflows_give_rights_and_names_to_no_branch() -> None:
    for path in (package.ROOT / ".github/workflows").glob("*.yml"):
        workflow = yaml.load(path.read_text(), yaml.BaseLoader)
        assert workflow["permissions"] == {}, path
        assert {*workflow["on"]} <= {"pull_request", "push", "workflow_call"}
        for job in workflow["jobs"].values():
            assert [one for one in job.get("steps", []) if "${{" in one.get("run", "")] == []
    # `make` expands the tag and passes it to a shell: it has digits and points only.
    release = yaml.load((path.with_name("release.yml")).read_text(), yaml.BaseLoader)
    assert release["on"]["push"] == {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}
