"""Availability of the compiled decoder: a machine that cannot use it learns why."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness.process import ROOT
from tests.native.reference import infeed_jpeg

ASK = "import infeed_jpeg; print(infeed_jpeg.unavailable())"


def test_missing_library_is_a_reason(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "native/infeed_jpeg", tmp_path / "infeed_jpeg", ignore=shutil.ignore_patterns("*.so")
    )
    said = subprocess.check_output([sys.executable, "-c", ASK], cwd=tmp_path, text=True)
    assert said.startswith("the library does not load: ")


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-user")
def test_processor_without_avx2_is_a_reason() -> None:
    folder = Path(infeed_jpeg.__file__).parents[1]
    command = ["qemu-x86_64", "-cpu", "max,avx2=off", sys.executable, "-c", ASK]
    said = subprocess.check_output(command, cwd=folder, text=True)
    assert said == "x86_64: the decoder needs an x86-64 processor with AVX2 and BMI2\n"
