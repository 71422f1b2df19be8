"""Programs that write files with the packages of their formats, in a Python that has these."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.harness.process import ROOT

VARIABLE = "INFEED_TEST_WRITERS"
"""Environment variable: a Python with the packages of requirements/writers.txt."""

FOLDER = ROOT / "tests/plugins/formats/writers"

needs_writers = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} is not set; `make test-writers` sets it"
)


def run_writer(*arguments: str | Path) -> str:
    """Runs that Python with a script or a program, which can import the modules of `FOLDER`;
    returns what it prints."""
    command = [os.environ[VARIABLE], *map(str, arguments)]
    run = subprocess.run(
        command, cwd=FOLDER, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
