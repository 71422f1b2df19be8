"""Batches in shared memory, between real processes at a Unix socket."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.waiting import wait_until

import infeed

SAMPLES, WIDTH, SIZE = 640, 4096, 16

DEFINITION = f"""
pipelines:
  a:
    source: {{arrays: a.npz}}
    shuffle: {{seed: 3}}
    batch: {{size: {SIZE}}}
"""

TRAINER = """
import sys, infeed
kept = []
with infeed.connect(sys.argv[1], "a") as feed:
    for step, batch in enumerate(feed):
        kept = [*kept[-3:], batch]
        if not step:
            print("began", flush=True)
"""


@pytest.fixture(scope="module")
def data() -> Any:
    return np.random.default_rng(0).integers(0, 255, (SAMPLES, WIDTH), np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: Any) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    np.savez(folder / "a.npz", x=data)
    return folder


@pytest.fixture(scope="module")
def server(command_line: Any, folder: Path) -> Iterator[Any]:
    """One server for all tests; the last one kills it."""
    server = command_line.serve(DEFINITION, folder, f"unix:{folder}/socket")
    assert server.address
    yield server
    server.kill()


def blocks_of(server: Any) -> int:
    """Counts the blocks that a server has mapped."""
    return Path(f"/proc/{server.pid}/maps").read_text().count("memfd:infeed-block")


@pytest.mark.parametrize(
    ("checksum", "epochs"),
    [
        *[("xxh3", 10), ("auto", 20)],
        pytest.param("auto", 2500, marks=pytest.mark.slow),  # 100,000 batches
    ],
)
def test_arrays_that_are_kept_never_change(
    server: Any, data: Any, checksum: Any, epochs: int
) -> None:
    kept: list[tuple[Any, Any]] = []
    choose = random.Random(5)
    with infeed.connect(server.address, "a", epochs=epochs, checksum=checksum) as feed:
        for step, batch in enumerate(feed):
            array = batch["x"]
            assert (array == data[batch.sample_ids]).all()
            if choose.random() < 0.3:  # the array is the training's own
                array[choose.randrange(SIZE)] = step % 255
            if choose.random() < 0.5:
                view = array[choose.randrange(SIZE) :: 2]
                kept.append((view, view.copy()))
            del array, batch
            while len(kept) > choose.randrange(1, 90):  # at times more than there are blocks
                kept.pop(choose.randrange(len(kept)))
            if step % 50 == 0:
                assert all((view == copy).all() for view, copy in kept)
        stats = feed.stats()
    (reason,) = stats.shared_memory.values()
    assert reason == "" or reason.startswith("the trainer keeps arrays of all ")
    assert all((view == copy).all() for view, copy in kept)
    wait_until(lambda: not blocks_of(server), "the blocks of the feed are freed")


def test_blocks_are_unmapped_when_the_feed_is_closed(server: Any) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("infeed-block")

    gc.collect()
    before = mapped()
    gc.disable()
    try:
        for _ in range(5):  # a stream is cancelled at another point each time
            with infeed.connect(server.address, "a") as feed:
                next(feed)
                assert mapped() > before
            wait_until(lambda: mapped() <= before, "the blocks are unmapped")
    finally:
        gc.enable()


def kill_trainers(server: Any, count: int) -> None:
    for number in range(count):
        command = [sys.executable, "-c", TRAINER, server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as trainer:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == b"began\n"
            time.sleep(random.Random(number).random() / 5)
            trainer.kill()
    wait_until(lambda: not blocks_of(server), "the blocks of killed trainers are freed")


def test_killed_trainers_leave_no_block(server: Any) -> None:
    kill_trainers(server, 1)


def test_feed_goes_on_elsewhere_after_the_server_was_killed(
    command_line: Any, server: Any, data: Any, folder: Path
) -> None:
    other = command_line.serve(DEFINITION, folder)
    sample_ids: list[int] = []
    kept: list[Any] = []
    target = f"{server.address},{other.address}"
    with infeed.connect(target, "a", epochs=3, prefetch_batches=4) as feed:
        for step, batch in enumerate(feed):
            sample_ids += batch.sample_ids.tolist()
            if step < 20:
                kept.append(batch)
            if step == 20:
                server.signal(signal.SIGKILL)
    assert sorted(sample_ids) == sorted([*range(SAMPLES)] * 3)
    assert all((batch["x"] == data[batch.sample_ids]).all() for batch in kept)
