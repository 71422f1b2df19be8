"""The tests of `on_backend.py` on backends without TensorFlow, and of the other files on all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("keras")

BACKENDS = {
    "jax": ["on_backend.py", "iterations.py", "evaluations.py"],
    "torch": ["on_backend.py", "iterations.py", "evaluations.py"],
    "tensorflow": ["iterations.py", "evaluations.py"],
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_keras_on(backend: str) -> None:
    pytest.importorskip(backend)
    files = [str(Path(__file__).with_name(name)) for name in BACKENDS[backend]]
    settings = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
