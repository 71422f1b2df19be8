"""The packages of docs/extending.md, installed and served."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomllib
from pydantic import TypeAdapter, ValidationError
from tests.harness import doc_blocks
from tests.harness.packages import write_package
from typer.testing import CliRunner

import infeed
from infeed import cli
from infeed.shared.doors import Door
from infeed_server import transforms
from infeed_server.runtime import engines
from infeed_server.sources import registry
from infeed_tools.init import drafter
from infeed_tools.init.detect import starter_for

DOORS = (
    (cli, "infeed.commands"),
    (engines, "infeed.engines"),
    (registry, "infeed.sources"),
    (drafter, "infeed.starters"),
    (transforms, "infeed.transforms"),
)


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Puts the page's packages on `sys.path`; returns the page's pipelines."""
    code: dict[str, list[str]] = defaultdict(list)
    for block in doc_blocks.read("docs/extending.md"):
        code[block.language].append(block.code)
    for project, module in zip(code["toml"], code["python"], strict=True):
        groups = tomllib.loads(project)["project"]["entry-points"]
        entry_points = "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in groups.items()
        )
        (name,) = {
            value.partition(":")[0] for entries in groups.values() for value in entries.values()
        }
        write_package(tmp_path / "packages", name.replace("_", "-"), entry_points, **{name: module})
    monkeypatch.syspath_prepend(tmp_path / "packages")
    for module, group in DOORS:
        monkeypatch.setattr(module, "_DOOR", Door(group, "object"))
    (pipelines,) = code["yaml"]
    return pipelines


def test_what_other_packages_add_is_served(pipelines: str, serve: Any, tmp_path: Path) -> None:
    records = np.arange(4 * 3073, dtype=np.uint8).reshape(4, -1)
    (tmp_path / "data").mkdir()
    for number in range(2):
        records[2 * number :][:2].tofile(tmp_path / "data" / f"{number}.fixed")
    server = serve(pipelines.replace("size: 64", "size: 4"))
    with infeed.connect(str(server.address), "records", epochs=1) as feed:
        assert [batch["record"].tolist() for batch in feed] == [(255 - records).tolist()]
    command = ["steps", str(server.address), "records", "--world-size", "2"]
    assert CliRunner().invoke(cli.new_app(), command).stdout == "1\n"
    drafts = starter_for(str(tmp_path / "data"), tmp_path).drafts
    assert drafts["data"].source == {"fixed": "data/*.fixed", "length": 3073}


def test_an_engine_of_another_package_serves_its_source(pipelines: str, serve: Any) -> None:
    server = serve("pipelines: {w: {source: {walk: 0.5}, shuffle: {seed: 7}, batch: 4}}")
    with infeed.connect(str(server.address), "w") as feed:
        first, second = next(feed), next(feed)
        state = feed.state()
    places = np.cumsum(np.random.default_rng(7).normal(scale=0.5, size=8))
    assert np.allclose([*first["place"], *second["place"]], places)
    with infeed.connect(str(server.address), "w", state=state) as feed:
        assert next(feed).start == 8


def test_check_imports_the_packages(pipelines: str, tmp_path: Path) -> None:
    # A separate process: in this one, TensorFlow is loaded before the packages.
    (tmp_path / "data").mkdir()
    np.zeros((64, 3073), np.uint8).tofile(tmp_path / "data" / "0.fixed")
    file = tmp_path / "pipelines.yaml"
    gain = pipelines[pipelines.index("    source") :].replace(
        "complement: {", "random_gain: {draw: a, "
    )
    file.write_text(f"{pipelines}  gain:\n{gain}  walk: {{source: {{walk: 0.5}}, batch: 4}}\n")
    program = "from infeed.cli import main; main()"
    command = [sys.executable, "-c", program, "check", str(file), "--scan"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "packages"), *sys.path]),
    }
    result = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=200
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "walk: not scanned, because a source walk has no index" in result.stdout


def test_a_transform_of_a_name_that_infeed_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "[infeed.transforms]\nresize = infeed_server.transforms.numeric:Cast\n"
    write_package(tmp_path, "infeed-resize", entries)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(transforms, "_DOOR", Door("infeed.transforms", "transform"))
    text = r"the transform 'resize', infeed_server\.transforms\.numeric:Cast of infeed-resize 1\.0"
    with pytest.raises(ValidationError, match=text):
        TypeAdapter(transforms.AnyTransform).validate_python({"resize": {"field": "x"}})


def test_code_of_other_packages_is_part_of_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (block, *_) = doc_blocks.read("docs/extending.md")
    found = []
    for number, code in enumerate((block.code, f"{block.code}# changed\n")):
        (tmp_path / f"code_{number}.py").write_text(code)
        complement = importlib.import_module(f"code_{number}").Complement(field="x")
        assert complement.has_other_code
        found.append(complement.identity())
    assert found[0]["complement"] == found[1]["complement"] == {"field": "x", "maximum": 255}
    assert found[0]["code"] != found[1]["code"]
