"""Refused batches: what is kept and logged of them."""

from __future__ import annotations

import pytest

from infeed.shared.errors import SourceError
from infeed_server.serving import refused as module
from infeed_server.serving.refused import RefusedBatches


def test_each_file_is_logged_once_and_the_last_batch_is_kept(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_LOGGED_FILES", 3)
    refused = RefusedBatches()
    for _ in range(2):
        for file in ("a", "b"):
            refused.add("p", SourceError(f"{file} changed", file=file, fault="changed"))
    refused.add("p", SourceError("cannot read a", file="a"))
    refused.add("p", SourceError("c changed", file="c"))  # above the limit
    messages = ("a changed", "b changed", "cannot read a")
    assert caplog.messages == [f"batches of 'p' are refused: {text}" for text in messages]
    last = refused.last["p"]
    assert (last.fault, last.file, last.error) == ("storage", "c", "c changed")
