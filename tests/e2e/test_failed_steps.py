"""Errors of steps at one of two real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import infeed

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


def test_feed_is_complete_if_one_host_alone_fails_steps(command_line: Any, tmp_path: Path) -> None:
    (tmp_path / "numbers_of_hosts.py").write_text(CODE)
    (tmp_path / "pipelines.yaml").write_text(TEXT)
    arguments = ("serve", "pipelines.yaml", "--listen", "127.0.0.1:0", "--http", "off")
    environments: tuple[dict[str, str], ...] = ({}, {"NUMBERS_FAIL": "1"})
    servers = [command_line.start(*arguments, cwd=tmp_path, **env) for env in environments]
    target = ",".join(server.address for server in servers)
    with infeed.connect(target, "numbers", epochs=1) as feed:
        batches = list(feed)
        left_out = feed.stats().left_out
    assert len(batches) == STEPS
    assert sorted(n for batch in batches for n in batch["n"].tolist()) == list(range(400))
    assert left_out
