"""Tests of the pytest plugins: last line, order of files, selected paths."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.plugins import longest_first
from tests.plugins.final_line import final_line

ROOT = Path(__file__).parents[2]

QUICK = "def test_quick(): pass\n"
SLOW = """
import pytest

def test_quick(): pass

@pytest.mark.slow
def test_slow(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with three test files, one of which has a slow test."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / longest_first.DURATIONS).parent.mkdir(parents=True)
    for name, text in (("a", QUICK), ("b", SLOW), ("c", QUICK)):
        (tmp_path / f"test_{name}.py").write_text(text)
    return tmp_path


def run(project: Path, *arguments: str, status: int = 0) -> list[str]:
    """Runs pytest with only these plugins and xdist; returns the lines of its output."""
    modules = ["xdist.plugin"]
    modules += (f"tests.plugins.{n}" for n in ("final_line", "longest_first", "selected_paths"))
    plugins = tuple(argument for module in modules for argument in ("-p", module))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-p", "no:cacheprovider", *arguments],
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
    return (done.stdout + done.stderr).strip().splitlines()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_last_line_counts_run_and_deselected_tests(project: Path, workers: str) -> None:
    last = run(project, "-m", "not slow", "-n", workers)[-1]
    assert last.startswith("ran 3 tests in ")
    assert last.endswith(" s: 3 passed; slow ones left to `make test-all`: 1")


def test_last_line_names_the_selected_path(project: Path) -> None:
    assert run(project, "test_b.py", "-n", "0")[-1].startswith("ran 2 tests of test_b.py in ")
    assert run(project, "-n", "0")[-1].endswith("4 passed; slow ones left to `make test-all`: none")


def test_last_line_has_every_outcome_and_minutes() -> None:
    outcomes = {"passed": 3000, "failed": 2, "error": 1, "skipped": 0}
    assert final_line(3002, outcomes, [], 0, 125.4) == (
        "ran 3,002 tests in 2 min 5 s: 2 failed, 1 error, 3,000 passed; "
        "slow ones left to `make test-all`: none"
    )
    assert final_line(1, {"error": 2}, [], 0, 3).startswith("ran 1 test in 3 s: 2 errors; slow")


def test_last_line_of_a_run_without_tests(project: Path) -> None:
    last = run(project, "test_a.py::test_missing", "-n", "2", status=5)[-1]
    assert last.startswith("ran 0 tests of test_a.py::test_missing in ")
    assert "none was found" in last


def test_last_line_of_an_interrupted_run(project: Path) -> None:
    (project / "test_a.py").write_text("def test_a(): raise KeyboardInterrupt\n")
    last = run(project, "test_a.py", "-n", "0", status=2)[-1]
    assert re.fullmatch(r"interrupted: ran 0 tests of test_a.py in \d+ s: none had ended", last)


def test_last_line_follows_the_output_of_conftest(project: Path) -> None:
    (project / "conftest.py").write_text("import os\nos.write(1, b'loaded\\n')\n")
    lines = run(project, "-n", "1")
    assert "loaded" in lines
    assert lines[-1].startswith("ran 4 tests in ")


def test_longest_file_starts_first(project: Path) -> None:
    measured = {"test_a.py": 2.0, "test_b.py": 1.0, "test_b.py::test_slow": 1.5, "missing.py": 9.0}
    longest_first.save(measured, project)
    kept = longest_first.load(project)
    assert kept == {"test_a.py": 2.0, "test_b.py": 1.0, "test_b.py::test_slow": 1.5}

    quick = [longest_first.key_of(f"test_{name}.py::test_quick", slow=False) for name in "abc"]
    slow = longest_first.key_of("test_b.py::test_slow", slow=True)
    expected = longest_first.expected_seconds([*quick, slow], kept)
    assert expected == {"test_a.py": 2.0, "test_b.py": 2.5, "test_c.py": 1.0}
    assert longest_first.expected_seconds(quick, kept)["test_b.py"] == 1.0


def test_xdist_runs_files_in_the_measured_order(project: Path) -> None:
    longest_first.save({"test_a.py": 1, "test_b.py": 2, "test_c.py": 3}, project)
    options = ("-n", "1", "--dist", "loadfile", "--no-loadscope-reorder", "-v", "-m", "not slow")
    passed = [line for line in run(project, *options) if "PASSED" in line]
    assert [line.split("test_")[1][0] for line in passed] == ["c", "b", "a"]


def test_durations_are_saved_by_file_and_slow_test(project: Path) -> None:
    (project / "conftest.py").write_text(
        "from tests.plugins import longest_first\nlongest_first.MIN_SECONDS = 0\n"
    )
    run(project, "-n", "0", "--write-durations")
    written = longest_first.load(project)
    assert sorted(written) == ["test_a.py", "test_b.py", "test_b.py::test_slow", "test_c.py"]


def test_durations_are_saved_only_of_whole_passed_files(project: Path) -> None:
    options = ("-n", "0", "--write-durations")
    lines = run(project, "test_b.py::test_quick", *options, status=4)
    assert "measures whole files, and test_b.py::test_quick is a part" in lines[-1]
    (project / "test_a.py").write_text("def test_quick(): assert False\n")
    lines = run(project, *options, status=1)
    assert f"{longest_first.DURATIONS} is unchanged: not every test passed" in lines
    assert longest_first.load(project) == {}


def test_saved_durations_are_of_existing_files() -> None:
    for key in longest_first.load(ROOT):
        assert (ROOT / key.partition("::")[0]).exists(), f"{key}: run `make durations`"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_missing_path_is_an_error_that_lists_its_folder(project: Path, workers: str) -> None:
    lines = run(project, "test_a.py", "test_x.py::test_quick", "-n", workers, status=4)
    error = f"ERROR: no file or folder test_x.py::test_quick; {project} has: "
    assert f"{error}test_a.py, test_b.py, test_c.py, tests" in lines
