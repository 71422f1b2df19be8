"""The workers of the `python` source in real processes: killed, and left by their server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.harness.children import children, is_alive
from tests.harness.waiting import wait_until

import infeed

COUNT = 96

CODE = f"""
import os

import numpy as np


class Pictures:
    fingerprint = "pictures"

    def __len__(self):
        return {COUNT}

    def __getitem__(self, index):
        side = 8 + index % 4
        pixels = np.random.default_rng(index).integers(0, 256, (side, side, 3), np.uint8)
        return {{"image": pixels, "label": index}}


def brighter(sample, rng):
    return {{**sample, "image": sample["image"] // 2 + rng.integers(0, 128, dtype=np.uint8)}}
"""

TEXT = """
pipelines:
  pictures:
    source: {python: pictures:Pictures, processes: 2}
    shuffle: {seed: 3}
    transforms:
      - map: {function: pictures:brighter, python: true}
      - random_crop: {field: image, size: [6, 6]}
    batch: {size: 6}
"""


def epoch(address: str, before: Callable[[int], None] = lambda step: None) -> list[Any]:
    """Returns the batches of an epoch; `before` is called before each step."""
    batches = []
    with infeed.connect(address, "pictures", epochs=1, prefetch_bytes=1) as feed:
        for step in range(COUNT // 6):
            before(step)
            batch = next(feed)
            batches.append((batch.sample_ids.tolist(), {**batch}))
    return batches


def test_killed_workers_change_no_batch(server_process: Any, tmp_path: Path) -> None:
    (tmp_path / "pictures.py").write_text(CODE)
    server = server_process(TEXT)
    expected = epoch(server.address)
    assert sorted(number for ids, _ in expected for number in ids) == list(range(COUNT))

    workers = set(children(server.pid))
    assert len(workers) == 2

    def kill(step: int) -> None:
        if step in (1, 3):
            for worker in children(server.pid):
                os.kill(worker, signal.SIGKILL)

    for (ids, batch), (expected_ids, expected_batch) in zip(
        epoch(server.address, kill), expected, strict=True
    ):
        assert ids == expected_ids
        for name, array in batch.items():
            np.testing.assert_array_equal(array, expected_batch[name], strict=True)
    assert server.log.count("ended: signal 9 (SIGKILL)") >= 2
    assert not [worker for worker in workers if is_running(worker)]

    workers |= set(children(server.pid))
    assert server.terminate() == 0, server.log
    assert not [pid for pid in workers if is_alive(pid)]


def test_workers_end_with_a_killed_server(server_process: Any, tmp_path: Path) -> None:
    (tmp_path / "pictures.py").write_text(CODE)
    server = server_process(TEXT)
    workers = children(server.pid)
    server.kill()
    wait_until(lambda: not any(map(is_running, workers)), "the workers end with the server")


def is_running(pid: int) -> bool:
    """Returns whether a process runs; where nothing reaps orphans, one that ended is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
