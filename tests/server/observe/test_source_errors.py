"""Source errors: the log has each file once, and the last error is kept."""

from __future__ import annotations

import pytest

from infeed.shared.errors import SourceError
from infeed_server.observe import metrics
from infeed_server.observe.metrics import Metrics


def test_each_file_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_MAX_LOGGED_FILES", 3)
    counted = Metrics("1", "2")
    for _ in range(2):
        for file in ("a", "b"):
            counted.on_source_error("p", SourceError(f"{file} changed", file=file, fault="changed"))
    counted.on_source_error("p", SourceError("cannot read a", file="a"))
    counted.on_source_error(
        "p", SourceError("c changed", file="c", fault="changed")
    )  # one more than the limit
    assert [record.getMessage() for record in caplog.records] == [
        "batches of 'p' are refused: a changed",
        "batches of 'p' are refused: b changed",
        "batches of 'p' are refused: cannot read a",
    ]
    last = counted.source_errors["p"]
    assert (last["fault"], last["file"], last["error"]) == ("changed", "c", "c changed")
    assert "q" not in counted.source_errors
