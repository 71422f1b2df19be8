"""The quarantine log: a line for each bad sample, once, and never in the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infeed.errors import SampleError
from infeed_server.engines.quarantine import Quarantine


def error(sample: int) -> SampleError:
    return SampleError(f"sample {sample} is bad", sample_id=sample, file="a.tfrecord", offset=12)


def test_each_sample_once(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "bad.jsonl"
    log = Quarantine(str(file), "photos", "mask")
    for sample in (1, 2, 1):
        log.add(error(sample))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["sample_id"] for line in lines] == ["1", "2"]
    assert (
        lines[0].items()
        >= {
            "pipeline": "photos",
            "action": "mask",
            "file": "a.tfrecord",
            "offset": "12",
            "reason": "BAD_SAMPLE",
            "error": "sample 1 is bad",
        }.items()
    )


def test_a_log_that_cannot_be_written_is_said_and_survived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    Quarantine(str(blocked / "bad.jsonl"), "photos", "raise").add(error(1))
    assert "cannot write the quarantine log" in caplog.text
