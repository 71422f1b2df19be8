"""The way from data to batches without an editor: init, check --scan, serve, one batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import infeed
from infeed.cli import new_app
from infeed_server.pipeline.load import from_yaml

KINDS = {
    "other-csv/table.csv": {"pictures": {"image": (8, 32, 32, 3), "label": (8,)}},
    "parts": {
        "parts-train": {"image": (4, 30, 40, 3), "label": (4,)},
        "parts-val": {"image": (4, 30, 40, 3), "label": (4,)},
    },
    "records": {
        name: {
            "box": (16, 4),
            "image/encoded": (16, 30, 40, 3),
            "label": (16,),
            "name": (16,),
            "tokens": (16, 8),
            "tokens_length": (16,),
        }
        for name in ("train", "val")
    },
    "rows": {"rows": {"image.bytes": (8, 32, 32, 3), "image.path": (8,), "label": (8,)}},
}
"""Path → pipeline → shape of each field of a batch."""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), arguments)


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.slow] * (path != "records")) for path in KINDS]
)
def test_each_kind_is_served_as_it_is_written(
    path: str, data: Path, tmp_path: Path, serve: Any
) -> None:
    if path == "rows":
        pytest.importorskip("pyarrow")
    file = str(tmp_path / "starter.yaml")
    made = run("init", str(data / path), "--output", file)
    assert made.exit_code == 0, made.output
    checked = run("check", file, "--scan", "--json")
    assert checked.exit_code == 0, checked.output
    server = serve(from_yaml(file))
    for name, shapes in KINDS[path].items():
        with infeed.connect(str(server.address), name) as feed:
            batch = next(feed)
            assert feed.spec.shuffle_mode == ("none" if name.endswith("val") else "global")
        assert {field: value.shape for field, value in batch.items()} == shapes
    assert [report["name"] for report in json.loads(checked.stdout)["pipelines"]] == [*KINDS[path]]
