"""Errors of steps at one of two real servers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import infeed
from infeed.prefetch import server_state

STEPS = 100

CODE = """
import os
import time

import numpy as np


class Numbers:
    fingerprint = "numbers"

    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(0.001)
        if index % 8 == 7 and os.environ.get("NUMBERS_FAIL"):
            raise RuntimeError("a fault of this host")
        return {"n": np.int64(index)}
"""

TEXT = """
pipelines:
  numbers: {source: {python: numbers_of_hosts:Numbers}, shuffle: {seed: 3}, batch: {size: 4}}
"""


@pytest.fixture
def two_servers(command_line: Any, tmp_path: Path) -> Any:
    def start(*environments: dict[str, str]) -> str:
        (tmp_path / "numbers_of_hosts.py").write_text(CODE)
        (tmp_path / "pipelines.yaml").write_text(TEXT)
        arguments = ("serve", "pipelines.yaml", "--listen", "127.0.0.1:0", "--http", "off")
        servers = [command_line.start(*arguments, cwd=tmp_path, **env) for env in environments]
        return ",".join(server.address for server in servers)

    return start


def test_feed_is_complete_if_one_host_alone_fails_steps(two_servers: Any) -> None:
    with infeed.connect(two_servers({}, {"NUMBERS_FAIL": "1"}), "numbers", epochs=1) as feed:
        batches = list(feed)
        left_out = feed.stats().left_out
    assert len(batches) == STEPS
    assert sorted(n for batch in batches for n in batch["n"].tolist()) == list(range(400))
    assert left_out


def test_feed_ends_with_the_error_of_both_hosts(two_servers: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(server_state, "CONFIRMATION_TIMEOUT_SECONDS", math.inf)
    target = two_servers({"NUMBERS_FAIL": "1"}, {"NUMBERS_FAIL": "1"})
    with (
        infeed.connect(target, "numbers", epochs=1) as feed,
        pytest.raises(infeed.UserCodeError, match="a fault of this host"),
    ):
        list(feed)
