"""The tests of `on_backend.py`, on each backend that needs no TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("keras")

TESTS = Path(__file__).with_name("on_backend.py")


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_on(backend: str) -> None:
    pytest.importorskip(backend)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS)],
        env={**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
