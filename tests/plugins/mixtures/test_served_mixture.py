"""Tests of mixtures as trainers get them: counts, parts of slots, resume, world sizes, servers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import until
from typer.testing import CliRunner

import infeed
from infeed import Shard
from infeed.cli import new_app

WEIGHTS = {"web": 3, "books": 1}


@pytest.fixture
def text(tmp_path: Path) -> str:
    for number, name in enumerate(WEIGHTS):
        values = np.arange(40 + 20 * number) + 1000 * number
        np.savez(tmp_path / f"{name}.npz", x=values)
    parts = ", ".join(
        f"{name}: {{source: {{arrays: {tmp_path}/{name}.npz}}, weight: {weight}}}"
        for name, weight in WEIGHTS.items()
    )
    return f"""
pipelines:
  both:
    source: {{mix: {{{parts}}}, block: 16, epoch: 128}}
    shuffle: {{mode: global, seed: 5}}
    batch: 8
"""


def whole(target: str, **options: Any) -> list[infeed.Batch]:
    with infeed.connect(target, "both", **options) as feed:
        return list(feed)


def test_a_mixture_is_served_by_weight(serve: Any, text: str) -> None:
    server = serve(text)
    target = str(server.address)
    batches = whole(target, epochs=2)
    read = server.instrument.monitor.registry.get_sample_value
    names = [{"pipeline": "both", "part": part} for part in WEIGHTS]
    until(lambda: [read("infeed_part_samples_total", labels) for labels in names] == [192, 64])
    x = np.concatenate([batch["x"] for batch in batches])
    source = np.concatenate([batch.source for batch in batches])
    assert [batch.epoch for batch in batches] == [0] * 16 + [1] * 16
    assert (source == "web").tolist() == (x < 1000).tolist()
    assert (source == "web").sum() == 192
    assert infeed.spec(target, "both").parts == {"web": 40, "books": 60}
    other = str(serve(text).address)
    ranks = [whole(other, epochs=2, shard=Shard(rank, 2), batch_size=4) for rank in range(2)]
    joined = [np.concatenate([a["x"], b["x"]]) for a, b in zip(*ranks, strict=True)]
    assert np.array_equal(np.concatenate(joined), x)
    assert all({"web", "books"} == {*np.concatenate([b.source for b in rank])} for rank in ranks)


def test_the_steps_of_a_sample_are_shown_with_its_part(serve: Any, text: str) -> None:
    arguments = ["when", str(serve(text).address), "both@5", "40", "--timeout", "120"]
    assert "books.npz, part books: 1 slots" in CliRunner().invoke(new_app(), arguments).stdout


def test_a_mixture_resumes_on_another_world_size(serve: Any, text: str) -> None:
    target = str(serve(text).address)
    x = np.concatenate([batch["x"] for batch in whole(target, epochs=3)])
    with infeed.connect(target, "both", epochs=3, shard=Shard(0, 2)) as feed:
        for _ in range(5):
            next(feed)
        state = feed.state()
    rest = np.concatenate([batch["x"] for batch in whole(target, epochs=3, state=state)])
    assert np.array_equal(rest, x[80:])


def test_an_epoch_too_many_ends_a_feed_with_its_position(serve: Any, text: str) -> None:
    limited = text.replace("weight: 1}", "weight: 1, max_epochs: 1}")
    target = str(serve(limited).address)
    with pytest.raises(infeed.InfeedError, match="'books' would begin its epoch 2 at position 24"):
        whole(target)
    assert len(whole(target, epochs=1)) == 16


def test_threads_and_files_do_not_grow_with_parts_times_trainers(
    serve: Any, tmp_path: Path
) -> None:
    def used(count: int) -> tuple[int, int]:
        parts = []
        for part in range(count):
            np.savez(tmp_path / f"{part}.npz", x=np.arange(50) + part)
            parts.append(f"p{part}: {{source: {{arrays: {tmp_path}/{part}.npz}}}}")
        mix = f"pipelines: {{both: {{mix: {{{', '.join(parts)}}}, batch: 8}}}}"
        server = serve(mix)
        feeds = [infeed.connect(str(server.address), "both", seed=seed) for seed in range(4)]
        for feed in feeds:
            next(feed)
        found = threading.active_count(), len([*Path("/proc/self/fd").iterdir()])
        for feed in feeds:
            feed.close()
        server.stop()
        return found

    used(2)  # what a process keeps from then on
    threads, files = used(2)
    more_threads, more_files = used(64)
    assert more_threads <= threads + 4
    assert more_files <= files + 8
