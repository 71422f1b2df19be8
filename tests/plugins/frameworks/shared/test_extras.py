"""Tests of the packages of adapters: what they need, and what they import."""

from __future__ import annotations

import subprocess
import sys

import pytest

TITLES = {
    "grain": "Grain",
    "jax": "JAX",
    "keras": "Keras",
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
}


def run(code: str) -> str:
    """Returns what a new interpreter prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200
    )
    return result.stdout


@pytest.mark.parametrize("name", TITLES)
def test_error_without_the_framework_has_the_command(name: str) -> None:
    output = run(
        "import sys, infeed\n"
        f"sys.modules[{name!r}] = None\n"
        "try:\n"
        f"    infeed.{name}\n"
        "except infeed.MissingExtraError as error:\n"
        "    print(error)\n"
    )
    assert output == f"infeed.{name} needs {TITLES[name]}: pip install 'infeed[{name}]'\n"


@pytest.mark.parametrize(
    ("name", "added", "allowed"),
    [
        ("keras", "generator", set()),
        ("torch", "FeedDataset", {"torch"}),
        ("jax", "connect", {"jax"}),
    ],
)
def test_adapter_imports_no_other_framework(name: str, added: str, allowed: set[str]) -> None:
    pytest.importorskip(name)
    names = ("keras", "tensorflow", "jax", "torch")
    loaded = f"[name for name in {names} if name in sys.modules]"
    assert (
        run(f"import sys\nfrom infeed.{name} import {added}\nprint({loaded})") == f"{[*allowed]}\n"
    )
