"""Tests of `infeed serve` before it serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_mistake_in_a_file_is_named_before_tensorflow_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('loaded')")
    (tmp_path / "bad.yaml").write_text("pipelines: {p: {source: {arrays: a.npz}, shufle: {}}}")
    process = subprocess.run(
        [sys.executable, "-m", "infeed", "serve", "bad.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode == 1
    assert "bad.yaml:1: pipelines.p.shufle: unknown key 'shufle'" in process.stderr
