"""Two processes of one training, each a script beside its test that prints JSON last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_two(script: Path, *arguments: str) -> list[dict[str, Any]]:
    """Runs `script NUMBER ARGUMENTS` as processes 0 and 1; returns what each prints."""
    # The flag of eight devices would win over the number that the processes set.
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(number), *arguments],
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )
        for number in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads(output.splitlines()[-1]) for output in outputs]
