"""The commands `infeed amend` and `infeed diff`: output, JSON and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed.course import Course
from infeed.cursor import Cursor
from infeed_runs.change.definitions import Definitions

TEXT = "pipelines:\n  p: {source: {arrays: x.npz}, shuffle: {seed: 3}, batch: {size: 4}}\n"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Writes a file of pipelines, and of a run at step 10; returns the run."""
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", x=np.arange(40))
    Path("p.yaml").write_text(TEXT)
    with Definitions("p.yaml") as definitions:
        fingerprint = definitions.open(None).fingerprint
    state = Cursor(
        "p", fingerprint, 3, 40, batch_size=4, world_size=1, course=Course(0, 0, 4)
    ).to_json()
    Path("run.json").write_text(json.dumps(state))
    return state


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), arguments)


def test_amend_replaces_the_run_only_with_yes(state: dict[str, Any]) -> None:
    call = ("amend", "run.json", "--from", "10", "p.yaml", "--skip", "10:12")
    shown = run(*call, "--never", "never.txt")
    assert "8 positions over all ranks are skipped" in shown.output
    assert "never.txt: 8 ids; name it in remove" in shown.output
    assert json.loads(Path("run.json").read_text()) == state
    assert len(Path("never.txt").read_text().splitlines()) == 8
    assert run(*call, "--yes").output.endswith("run.json: written\n")
    assert len(json.loads(Path("run.json").read_text())["segments"]) == 2


def test_amend_does_not_replace_a_checkpoint(state: dict[str, Any]) -> None:
    Path("run.json").write_text(json.dumps({"state": state, "model": 7}))
    shown = run("amend", "run.json", "--from", "10", "p.yaml", "--seed", "5", "--yes")
    assert shown.exit_code == 2
    assert "more than a cursor" in shown.output
    assert json.loads(Path("run.json").read_text())["model"] == 7


@pytest.mark.parametrize("text", ["4", "6:4", "a:b"])
def test_wrong_range_of_steps(state: dict[str, Any], text: str) -> None:
    shown = run("amend", "run.json", "--from", "10", "p.yaml", "--skip", text)
    assert shown.exit_code == 2
    assert "first step and the end" in shown.output


def test_diff_lists_slots_and_reasons(state: dict[str, Any]) -> None:
    assert "identical" in run("diff", "run.json", "p.yaml").output
    shown = run("diff", "p.yaml", "p.yaml@4", "--steps", "0:2").output
    assert "seed: 3 -> 4" in shown
    assert "other draws: 8 of 8 (100.00%)" in shown
    assert "…" not in shown
    found = json.loads(run("diff", "p.yaml", "p.yaml@4", "--json").stdout)
    assert (found["begin"], found["end"], found["draws"]) == (0, 40, 40)
    assert len(found["first"]) == 10
