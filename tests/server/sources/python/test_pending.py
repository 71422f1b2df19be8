"""The warning about user code that takes long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.harness.waiting import wait_until

from infeed_server.sources import PythonSource

ROWS = """
import os
import pathlib
import time


class Rows:
    fingerprint = "rows"

    def __len__(self):
        return 40

    def __getitem__(self, index):
        while index == 3 and not pathlib.Path({go!r}).exists():
            time.sleep(0.01)
        return os.getpid()
"""


@pytest.mark.parametrize("processes", [0, 1])
def test_process_and_samples_of_a_slow_request_are_named(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    processes: int,
) -> None:
    for name, seconds in {"_SLOW_SECONDS": 0.1, "_REPEAT_SECONDS": 0.2}.items():
        monkeypatch.setattr(f"infeed_server.sources.python.backend.{name}", seconds)
    module = f"slow_rows_{processes}"
    (tmp_path / f"{module}.py").write_text(ROWS.format(go=str(tmp_path / "go")))
    monkeypatch.syspath_prepend(tmp_path)
    definition = PythonSource.model_validate(
        {"python": f"{module}:Rows", "fields": {"value": "int64"}, "processes": processes}
    )
    with closing(definition.open()) as source, ThreadPoolExecutor(1) as executor:
        caplog.clear()
        answer = executor.submit(source.read, np.arange(12))
        wait_until(lambda: len(caplog.messages) > 1, lambda: "the request is logged twice")
        (tmp_path / "go").touch()
        pid = answer.result()["value"][0]
    assert caplog.messages[1].startswith(
        f"samples 0, 1, 2, 3, 4, 5, 6, 7 and 4 more of {module}:Rows: process {pid} has "
        "worked on it for 0 s"
    )
