"""The tutorial of docs/fleet.md, run in one shell from its first block to its last."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.harness import doc_blocks
from tests.harness.nursery import Nursery

from infeed_tools.demo.shapes import write_images

PAGE = "docs/fleet.md"
DEMO = "infeed demo --epochs 1 "
SHOWN = (
    "all 2 servers serve the same",
    "is lost, and is tried again",
    "each of 2,000 images came 10 to 10 times",
)


def test_fleet_outlives_a_server(
    nursery: Nursery, new_address: Callable[[], str], tmp_path: Path
) -> None:
    for part, count in (("train", 2000), ("test", 500)):
        assert len([*write_images(tmp_path / "infeed-demo" / part, count, 0)]) == count
    ports = {port: new_address().split(":")[1] for port in ("7470", "7471", "7480", "7481")}
    commands = []
    for block in doc_blocks.read(PAGE):
        code = re.sub(r"\b74[78][01]\b", lambda match: ports[match[0]], block.code)
        if block.language == "python":
            (tmp_path / "train.py").write_text(code)
        elif block.language == "sh":
            commands.append(code)
    script = "".join(commands)
    assert script.startswith(DEMO)
    for name, call in (("infeed", "-m infeed"), ("python", "")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {nursery.python} {call} "$@"\n')
        program.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script.replace(DEMO, "true ")],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    assert [line for line in SHOWN if line not in output] == [], output
