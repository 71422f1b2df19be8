"""Tests of the notebooks in examples: they run as programs, and their twins have the same cells."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tools.notebooks import FOLDER, twins
from tools.site.__main__ import OTHER_PAGES

NAMES = sorted(file.stem for file in FOLDER.glob("*.py"))


def run(name: str, folder: Path) -> str:
    """Runs a notebook as a program, with its files in a folder; returns what it prints."""
    env = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    env |= {"PYTHONPATH": os.pathsep.join(item for item in sys.path if item)}
    env |= {"TMPDIR": str(folder)}
    command = [sys.executable, FOLDER / f"{name}.py"]
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output = process.communicate(timeout=300)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):  # its server too, if it failed
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, output
    return output


def test_restarted_server_loses_nothing(tmp_path: Path) -> None:
    output = run("first", tmp_path)
    assert "delivered: 640 images, different ones: 640\n" in output
    assert output.endswith("in the order of an undisturbed epoch: True\n")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
    assert len(losses) == 20
    assert losses[-1] < losses[9] < losses[0]


def test_verdict_is_another_with_a_cache(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    output = run("verdict", tmp_path)
    assert len(re.findall(r"^(?:not|moderately|highly) input-bound: ", output, re.MULTILINE)) == 2
    decoded, cached = re.findall(r"(\d+)%", output.splitlines()[-1])
    assert int(cached) < int(decoded)


def test_twins_are_of_the_programs() -> None:
    found = {file: file.read_text() for file in FOLDER.glob("*.md")}
    assert found == twins(), "run make docs"


@pytest.mark.parametrize("name", NAMES)
def test_readme_of_examples_and_site_have_it(name: str) -> None:
    readme = (FOLDER.parent / "README.md").read_text()
    assert f"(notebooks/{name}.py)" in readme
    assert f"(notebooks/{name}.md)" in readme
    assert f"examples/notebooks/{name}.md" in OTHER_PAGES
