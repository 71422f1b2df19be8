"""Tests of the pytest plugins: order and durations of files, quick graphs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.hooks import longest_first, quick_graphs

ROOT = Path(__file__).parents[3]

QUICK = "def test_quick(): pass\n"
SLOW = f"import pytest\n\n{QUICK}\n@pytest.mark.slow\ndef test_slow(): pass\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Three test files, one of which has a slow test."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / longest_first.DURATIONS).parent.mkdir(parents=True)
    for name, text in (("a", QUICK), ("b", SLOW), ("c", QUICK)):
        (tmp_path / f"test_{name}.py").write_text(text)
    return tmp_path


def run(project: Path, *arguments: str, status: int = 0) -> list[str]:
    """Runs pytest with this plugin alone; returns the lines of its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", longest_first.__name__, *arguments],
        cwd=project,
        env={
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_worker_runs_the_longest_file_first(project: Path) -> None:
    measured = {"test_a.py": 2.0, "test_b.py": 1.0, "test_b.py::test_slow": 1.5}
    longest_first.save({**measured, "gone.py": 9.0}, project)
    assert longest_first.load(project) == measured
    xdist = ("-p", "xdist.plugin", "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder", "-v")

    def order(*arguments: str) -> list[str]:
        lines = run(project, *xdist, *arguments)
        return [line.split("test_")[1][0] for line in lines if "PASSED" in line]

    assert order() == ["b", "b", "a", "c"]
    assert order("-m", "not slow") == ["a", "b", "c"]


@pytest.mark.parametrize(("marks", "off"), [("not slow", True), ("", False)])
def test_graphs_lack_grapplers_passes_in_quick_runs_only(
    monkeypatch: pytest.MonkeyPatch, marks: str, off: bool
) -> None:
    options: dict[str, bool] = {}
    optimizer = SimpleNamespace(set_experimental_options=options.update)
    tensorflow = SimpleNamespace(config=SimpleNamespace(optimizer=optimizer))
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    session: Any = SimpleNamespace(config=SimpleNamespace(getoption={"markexpr": marks}.get))
    quick_graphs.pytest_collection_finish(session)
    assert options == ({"disable_meta_optimizer": True} if off else {})
