"""Fuzzing of the compiled decoder: changed pictures, under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings
from tests.harness.process import ROOT
from tests.native.reference import encode, some_pixels


@pytest.mark.slow  # compiles the decoder
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_changed_pictures_harm_no_memory(tmp_path: Path) -> None:
    seconds = settings.default.max_examples // 20  # 5, and 100 in `make fuzz`
    for seed in range(60):
        sampling = ("4:4:4", "4:2:2", "4:2:0")[seed % 3]
        restarts = {"restart_marker_blocks": 3} if seed % 5 == 0 else {}
        pixels = some_pixels(9 + seed, 80 - seed, seed, is_grey=seed % 7 == 0)
        record = encode(pixels, subsampling=sampling, quality=95 - seed, **restarts)
        if seed % 10 == 9:  # states far more pixels than its scan can have
            frame = record.index(b"\xff\xc0")
            record = record[: frame + 5] + b"\0\x10\xff\xdc" + record[frame + 9 :]
        (tmp_path / f"{seed}.jpg").write_bytes(record)
    run = [ROOT / "native/fuzz/run.sh", str(seconds), tmp_path]
    result = subprocess.run(run, check=False, capture_output=True, text=True, timeout=seconds + 300)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
