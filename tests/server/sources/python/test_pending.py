"""Tests of `PendingRequest`: the warning about user code that takes long."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.harness.clock import ManualClock
from tests.harness.waiting import wait_until

from infeed_server.sources import PythonSource
from infeed_server.sources.python import backend
from infeed_server.sources.python.backend import PendingRequest


class LateAnswer(Future[Any]):
    """An answer at a time of the clock."""

    def __init__(self, clock: ManualClock, time: float) -> None:
        super().__init__()
        self.clock, self.time = clock, time

    def wait(self, answers: Any, timeout: float) -> Any:
        """Advances the clock, as a function that waits for one answer."""
        self.clock.now += timeout
        if self.clock.now < self.time:
            return SimpleNamespace(done=set())
        self.set_result("answer")
        return SimpleNamespace(done=set(answers))


@pytest.mark.parametrize(
    ("begun", "answered", "expected"),
    [
        (None, 5000, []),
        (0, 60, []),
        (0, 80, [60]),
        (100, 170, [60]),
        (0, 660, [60]),
        (0, 1261, [60, 660, 1260]),
    ],
)
def test_slow_request_is_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    begun: float | None,
    answered: float,
    expected: list[float],
) -> None:
    clock = ManualClock()
    answer = LateAnswer(clock, answered)
    monkeypatch.setattr(backend.futures, "wait", answer.wait)
    request = PendingRequest("samples 3, 4 of rows", clock)
    if begun is not None:
        clock.now = begun
        request.begin(4711)
    assert request.wait(answer) == "answer"
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * len(expected)
    assert caplog.messages == [
        f"samples 3, 4 of rows: process 4711 has worked on it for {seconds} s and has not "
        "returned; batches wait"
        for seconds in expected
    ]


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
    for name, seconds in {"_SLOW_SECONDS": 0.0, "_CHECK_INTERVAL_SECONDS": 0.01}.items():
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
        wait_until(lambda: caplog.messages, lambda: "the request is logged")
        (tmp_path / "go").touch()
        pid = answer.result()["value"][0]
    assert caplog.messages[0].startswith(
        f"samples 0, 1, 2, 3, 4, 5, 6, 7, ... of {module}:Rows: process {pid} has "
        "worked on it for 0 s"
    )
