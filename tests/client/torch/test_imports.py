"""Tests of the imports of `infeed.torch`: PyTorch is required, and TensorFlow is not loaded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest


def run(code: str) -> str:
    """Returns what a new interpreter prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200
    )
    return result.stdout


def test_without_pytorch_the_error_has_the_command_that_installs_it() -> None:
    output = run(
        "import sys, infeed\n"
        "sys.modules['torch'] = None\n"
        "try:\n"
        "    infeed.torch\n"
        "except infeed.MissingExtraError as error:\n"
        "    print(error)\n"
    )
    assert "pip install 'infeed[torch]'" in output


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_no_other_framework_is_loaded() -> None:
    output = run("import sys, infeed.torch\nprint({*sys.modules} & {'tensorflow', 'jax', 'keras'})")
    assert output == "set()\n"
