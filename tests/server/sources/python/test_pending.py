"""Tests of `pending.py`: the warning about user code that takes long, and what backends give it."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.harness.clock import ManualClock
from tests.harness.waiting import wait_until

from infeed_server.sources.python.backends import DatasetBackend
from infeed_server.sources.python.dataset import DatasetOptions
from infeed_server.sources.python.pending import PendingRequest
from infeed_server.sources.python.values import Field


class LateAnswer(Future[Any]):
    """An answer at a time of the clock, which waiting advances."""

    def __init__(self, clock: ManualClock, time: float) -> None:
        super().__init__()
        self.clock, self.time = clock, time

    def exception(self, timeout: float | None = None) -> BaseException | None:
        assert timeout is not None
        self.clock.now += timeout
        if self.clock.now < self.time:
            raise TimeoutError
        self.set_result("answer")
        return super().exception()


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
    caplog: pytest.LogCaptureFixture, begun: float | None, answered: float, expected: list[float]
) -> None:
    clock = ManualClock()
    request = PendingRequest("samples 3, 4 of rows", clock)
    if begun is not None:
        clock.now = begun
        request.begin(4711)
    assert request.wait(LateAnswer(clock, answered)) == "answer"
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
        monkeypatch.setattr(f"infeed_server.sources.python.pending.{name}", seconds)
    module = f"slow_rows_{processes}"
    (tmp_path / f"{module}.py").write_text(ROWS.format(go=str(tmp_path / "go")))
    monkeypatch.syspath_prepend(tmp_path)
    options = DatasetOptions(f"{module}:Rows", "rows", ("pid",), (Field("pid", "int64"),))
    backend = DatasetBackend(options, processes)
    with closing(backend), ThreadPoolExecutor(1) as executor:
        caplog.clear()
        answer = executor.submit(backend.read, range(12))
        wait_until(lambda: caplog.messages, lambda: "the request is logged")
        (tmp_path / "go").touch()
        pid = answer.result()["pid"][0]
    assert caplog.messages[0].startswith(
        f"samples 0, 1, 2, 3, 4, 5, 6, 7, ... of rows: process {pid} has worked on it for 0 s"
    )
