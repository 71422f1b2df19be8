"""Tests of the pytest plugins: last line, order of files, selected paths."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.plugins import final_line, longest_first, quick_graphs, selected_paths

ROOT = Path(__file__).parents[2]
PLUGINS = (final_line, longest_first, selected_paths)

QUICK = "def test_quick(): pass\n"
INTERRUPTED = """
import os
import time

def test_a():
    os.write(2, b"test runs\\n")
    time.sleep(60)
"""
ENDS_SLOWLY = """
import os
import time

def pytest_sessionfinish():
    os.write(2, b"run ends\\n")
    time.sleep(60)
"""
SLOW = """
import pytest

def test_quick(): pass

@pytest.mark.slow
def test_slow(): pass
"""


def write_project(folder: Path) -> Path:
    """Writes three test files, one of which has a slow test."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (folder / longest_first.DURATIONS).parent.mkdir(parents=True)
    for name, text in (("a", QUICK), ("b", SLOW), ("c", QUICK)):
        (folder / f"test_{name}.py").write_text(text)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path)


Run = Callable[..., list[str]]


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run(*arguments)` runs pytest with only these plugins in this process, which is quick, and
    returns the lines of its output and of its functions for the exit."""

    def run(*arguments: str, status: int = 0) -> list[str]:
        at_exit: list[Callable[[], None]] = []

        def register(function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
            at_exit.append(partial(function, *args, **kwargs))

        for name in ("test_a", "test_b", "test_c"):
            sys.modules.pop(name, None)  # of an earlier run
        monkeypatch.setattr(final_line, "atexit", SimpleNamespace(register=register))
        options = ("--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:faulthandler")
        assert pytest.main([*options, *arguments], [*PLUGINS]) == status
        for function in at_exit:
            function()
        output = capfd.readouterr()
        return (output.out + output.err).strip().splitlines()

    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return run


def run_workers(project: Path, count: int, *arguments: str, status: int = 0) -> list[str]:
    """Runs pytest with only these plugins and xdist; returns the lines of its output."""
    modules = ("xdist.plugin", *(module.__name__ for module in PLUGINS))
    plugins = tuple(argument for module in modules for argument in ("-p", module))
    options = (*plugins, "-p", "no:cacheprovider", "-n", str(count))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
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


@pytest.fixture(scope="module")
def lines_of_a_worker(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output of a run with one worker, whose conftest writes a line."""
    project = write_project(tmp_path_factory.mktemp("project"))
    (project / "conftest.py").write_text("import os\nos.write(1, b'loaded\\n')\n")
    longest_first.save({"test_a.py": 1, "test_b.py": 2, "test_c.py": 3}, project)
    options = ("--dist", "loadfile", "--no-loadscope-reorder", "-v", "-m", "not slow")
    return run_workers(project, 1, *options)


def assert_counts(last: str) -> None:
    assert last.startswith("ran 3 tests in ")
    assert last.endswith(" s: 3 passed; slow ones left to `make test-all`: 1")


def test_last_line_counts_run_and_deselected_tests(run: Run) -> None:
    assert_counts(run("-m", "not slow")[-1])


def test_last_line_counts_the_tests_of_two_workers(project: Path) -> None:
    assert_counts(run_workers(project, 2, "-m", "not slow")[-1])


def test_last_line_names_the_selected_path(run: Run) -> None:
    assert run("test_b.py")[-1].startswith("ran 2 tests of test_b.py in ")
    assert run()[-1].endswith("4 passed; slow ones left to `make test-all`: none")


def test_last_line_has_every_outcome_and_minutes() -> None:
    outcomes = {"passed": 3000, "failed": 2, "error": 1, "skipped": 0}
    assert final_line.final_line(3002, outcomes, [], 0, 125.4) == (
        "ran 3,002 tests in 2 min 5 s: 2 failed, 1 error, 3,000 passed; "
        "slow ones left to `make test-all`: none"
    )
    assert final_line.final_line(1, {"error": 2}, [], 0, 3).startswith(
        "ran 1 test in 3 s: 2 errors; slow"
    )


def test_last_line_of_a_run_without_tests(project: Path) -> None:
    last = run_workers(project, 1, "test_a.py::test_quick[1]", status=5)[-1]
    assert last.startswith("ran 0 tests of test_a.py::test_quick[1] in ")
    assert "none was found" in last


def test_last_line_of_an_interrupted_run(project: Path, run: Run) -> None:
    (project / "test_a.py").write_text("def test_a(): raise KeyboardInterrupt\n")
    last = run("test_a.py", status=2)[-1]
    assert re.fullmatch(r"interrupted: ran 0 tests of test_a.py in \d+ s: none had ended", last)


def test_second_interrupt_ends_a_run_without_a_traceback(project: Path) -> None:
    (project / "conftest.py").write_text(ENDS_SLOWLY)
    (project / "test_a.py").write_text(INTERRUPTED)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "tests.plugins.second_interrupt"]
    # A run of its own, and no worker of the one that this test is in.
    inherited = {key: value for key, value in os.environ.items() if "XDIST" not in key}
    with subprocess.Popen(
        [*command, "test_a.py"],
        cwd=project,
        env={**inherited, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "test runs" in line or "run ends" in line:
                os.killpg(process.pid, signal.SIGINT)
    output = "".join(lines)
    assert "run ends" in output
    assert "Traceback" not in output
    assert output.endswith("interrupted again: ended without the fixtures' ends\n")
    assert process.returncode == 130


def test_last_line_follows_the_output_of_conftest(lines_of_a_worker: list[str]) -> None:
    assert "loaded" in lines_of_a_worker
    assert_counts(lines_of_a_worker[-1])


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


def test_xdist_runs_files_in_the_measured_order(lines_of_a_worker: list[str]) -> None:
    passed = [line for line in lines_of_a_worker if "PASSED" in line]
    assert [line.split("test_")[1][0] for line in passed] == ["c", "b", "a"]


def test_durations_are_saved_by_file_and_slow_test(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longest_first, "MIN_SECONDS", 0)
    run("--write-durations")
    written = longest_first.load(project)
    assert sorted(written) == ["test_a.py", "test_b.py", "test_b.py::test_slow", "test_c.py"]


def test_durations_are_saved_only_of_whole_passed_files(project: Path, run: Run) -> None:
    lines = run("test_b.py::test_quick", "--write-durations", status=4)
    assert "measures whole files, and test_b.py::test_quick is a part" in lines[-1]
    (project / "test_a.py").write_text("def test_quick(): assert False\n")
    lines = run("--write-durations", status=1)
    assert f"{longest_first.DURATIONS} is unchanged: not every test passed" in lines
    assert longest_first.load(project) == {}


def test_saved_durations_are_of_existing_files() -> None:
    for key in longest_first.load(ROOT):
        assert (ROOT / key.partition("::")[0]).exists(), f"{key}: run `make durations`"


def test_missing_path_is_an_error_that_lists_its_folder(project: Path, run: Run) -> None:
    paths = ("test_a.py", "test_x.py::test_quick")
    error = f"ERROR: no file or folder test_x.py::test_quick; {project} has: "
    for lines in (run(*paths, status=4), run_workers(project, 2, *paths, status=4)):
        assert f"{error}test_a.py, test_b.py, test_c.py, tests" in lines


def test_missing_test_is_an_error_that_lists_its_file(project: Path, run: Run) -> None:
    paths = ("test_b.py", "test_a.py::test_missing")
    for lines in (run(*paths, status=4), run_workers(project, 2, *paths, status=4)):
        assert "ERROR: no test test_missing in test_a.py, which has: test_quick" in lines


def test_inherited_and_assigned_tests_can_be_selected(project: Path, run: Run) -> None:
    text = (
        "class Base:\n    def test_inherited(self): pass\nclass TestA(Base): pass\nTestB = TestA\n"
    )
    (project / "test_a.py").write_text(text)
    paths = ("test_a.py::TestA::test_inherited", "test_a.py::TestB::test_inherited")
    assert "2 passed" in run(*paths)[-1]


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
