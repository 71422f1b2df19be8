"""Source errors: the log has each file once, and the last error is kept."""

from __future__ import annotations

import pytest

from infeed.shared.errors import SourceError
from infeed_server.observe import source_errors
from infeed_server.observe.source_errors import SourceErrors


def test_each_file_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_errors, "_MAX_LOGGED_FILES", 3)
    errors = SourceErrors()
    for _ in range(2):
        for file in ("a", "b"):
            errors.add("p", SourceError(f"{file} changed", file=file, fault="changed"))
    errors.add("p", SourceError("cannot read a", file="a"))
    errors.add("p", SourceError("c changed", file="c", fault="changed"))  # one more than the limit
    assert [record.getMessage() for record in caplog.records] == [
        "batches of 'p' are refused: a changed",
        "batches of 'p' are refused: b changed",
        "batches of 'p' are refused: cannot read a",
    ]
    last = errors.last("p")
    assert last is not None
    assert (last["fault"], last["file"], last["error"]) == ("changed", "c", "c changed")
    assert errors.last("q") is None
