"""The log of a server process: JSON on every line, and nothing with --quiet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import infeed

PIPELINES = "pipelines: {n: {source: {arrays: n.npy}, batch: {size: 4}}}"


def test_every_line_is_json_and_names_the_trainer(command_line: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "n.npy", np.arange(100))
    server = command_line.serve(PIPELINES, tmp_path, "127.0.0.1:0", "--log-format", "json")
    with infeed.connect(server.address, "n") as feed:
        next(feed)
    server.stop()
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    (connected,) = [line for line in lines if line.get("event") == "connected"]
    assert {key: connected[key] for key in ("pipeline", "rank", "world_size", "position")} == {
        "pipeline": "n",
        "rank": 0,
        "world_size": 1,
        "position": 0,
    }
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    messages = [line["message"] for line in lines]
    assert any(message.startswith("pipeline n: ") for message in messages)
    assert "stopping" in messages
