"""kill -9 of a worker and of the dispatcher: training goes on, and what is lost is counted."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.e2e.service import Cluster, kept, photos_text, told

import infeed

EPOCHS = 8
BATCH = 16


def test_a_killed_worker_and_a_killed_dispatcher(
    command_line: Any,
    photos: SimpleNamespace,
    tmp_path: Path,
    record_property: Any,
) -> None:
    cluster = Cluster(command_line, tmp_path, photos_text(photos)).start(3)
    go = tmp_path / "go"
    trainer = cluster.trainer(go, job_name="killed", epochs=EPOCHS)
    while "ready" not in trainer.stdout:
        assert not trainer.ended, trainer.stdout + trainer.stderr
        time.sleep(0.05)
    seen: Counter[int] = Counter()
    go.touch()
    total = photos.count * EPOCHS
    with infeed.connect(cluster.target, "photos", epochs=EPOCHS, job_name="killed") as feed:
        assert feed.guarantee.delivery == "at_most_once"
        for step, batch in enumerate(feed):
            seen.update(kept([batch.sample_ids.tolist()]))
            if step == 10:
                cluster.processes["worker 1"].signal(signal.SIGKILL)
                cluster.processes["worker 1"].wait()
                cluster.work(1)
            elif step == 40:
                cluster.processes["dispatcher"].signal(signal.SIGKILL)
                cluster.processes["dispatcher"].wait()
                cluster.dispatch()
    seen.update(kept(told(trainer)["batches"]))
    for process in cluster.processes.values():
        process.kill()

    lost = total - sum(seen.values())
    repeated = sum(max(0, times - EPOCHS) for times in seen.values())
    print(f"worker and dispatcher killed: of {total} samples {lost} lost, {repeated} repeated")
    record_property("lost", lost)
    assert repeated == 0, "at most once is what was promised"
    # What the killed worker had taken and not given: what it prefetches, and its clients ask for.
    assert lost <= 20 * BATCH


@pytest.mark.slow
def test_a_worker_that_never_comes_back(
    command_line: Any, photos: SimpleNamespace, tmp_path: Path
) -> None:
    """An epoch ends without it, a minute later; TensorFlow alone would wait for ever."""
    cluster = Cluster(command_line, tmp_path, photos_text(photos)).start(2)
    seen: Counter[int] = Counter()
    with infeed.connect(cluster.target, "photos", epochs=2, job_name="alone") as feed:
        for step, batch in enumerate(feed):
            seen.update(kept([batch.sample_ids.tolist()]))
            if step == 10:
                cluster.processes["worker 1"].kill()
    for process in cluster.processes.values():
        process.kill()
    assert max(seen.values()) <= 2
    assert 2 * photos.count - sum(seen.values()) <= 20 * BATCH
