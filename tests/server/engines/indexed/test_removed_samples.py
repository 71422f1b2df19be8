"""Tests of batches without some samples, of longer data and of skipped steps: what else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from infeed_server.engines.base import Engine, HostBatch, Request, Trainer
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.load import from_yaml, parse
from infeed_server.runtime.engine_factory import build
from infeed_tools.audit.run import audit

N, SIZE, SEED = 60, 4, 5
REMOVED = [3, 17, 18, 44, 59]

SHUFFLES = [
    {"mode": "global"},
    {"mode": "window", "block": 4, "window": 16},
    {"mode": "none"},
    {"order": "stable"},
]


def images(first: int = 0, count: int = N) -> dict[str, Any]:
    """Returns a source of images that differ, and their numbers."""
    numbers = np.arange(first, first + count)
    pixels = [np.random.default_rng(n).integers(0, 255, (4, 6, 3), np.uint8) for n in numbers]
    return {"arrays": {"x": numbers, "image": np.array(pixels)}}


@contextmanager
def serving(**options: Any) -> Iterator[Engine]:
    augment = [
        {"random_flip_left_right": {"field": "image"}},
        {"random_brightness": {"field": "image", "max_delta": 0.4}},
    ]
    values = {"source": images(), "transforms": augment, "batch": SIZE, **options}
    engine = build("images", parse(values), Monitor())
    try:
        yield engine
    finally:
        engine.close()


def read(engine: Engine, steps: int, seed: int = SEED) -> list[HostBatch]:
    session = engine.open(SIZE, 0, Trainer())
    try:
        answers = []
        for step in range(steps):
            answers.append(session.submit(Request(seed, step * SIZE, SIZE, SIZE)).result(60))
            session.on_sent()
    finally:
        session.close()
    batches = [answer for answer in answers if isinstance(answer, HostBatch)]
    assert len(batches) == steps
    return batches


def same_slots(one: HostBatch, other: HostBatch) -> np.ndarray:
    """Returns whether each slot has the same bits."""
    same = one.sample_ids == other.sample_ids
    for name, rows in one.arrays.items():
        same &= (rows == other.arrays[name]).reshape(len(rows), -1).all(axis=1)
    return same


@pytest.mark.parametrize("shuffle", SHUFFLES, ids=str)
def test_only_the_slots_of_removed_samples_change(shuffle: dict[str, Any]) -> None:
    steps = 2 * N // SIZE
    with serving(shuffle=shuffle) as engine:
        whole = read(engine, steps)
    with serving(shuffle=shuffle, remove=REMOVED) as engine:
        rest = read(engine, steps)
    changed = 0
    for one, other in zip(whole, rest, strict=True):
        is_removed = np.isin(one.sample_ids, REMOVED)
        assert (same_slots(one, other) == ~is_removed).all()
        assert (one.epoch, one.start) == (other.epoch, other.start)
        assert not np.isin(other.sample_ids, REMOVED).any()
        assert (other.arrays["x"] == other.sample_ids).all()
        changed += int(is_removed.sum())
    assert changed == 2 * len(REMOVED)


@pytest.mark.parametrize("shuffle", SHUFFLES, ids=str)
def test_a_shorter_epoch_has_each_sample_that_is_left_once(shuffle: dict[str, Any]) -> None:
    left = sorted({*range(N)} - {*REMOVED})
    with serving(shuffle=shuffle, remove={"samples": REMOVED, "then": "shrink"}) as engine:
        assert engine.spec.sample_count == len(left)
        ids = [batch.sample_ids for batch in read(engine, 3 * len(left) // SIZE + 1)]
    stream = np.concatenate(ids)[: 3 * len(left)].reshape(3, -1)
    assert np.sort(stream, axis=1).tolist() == [left] * 3


def test_a_substitute_of_a_bad_sample_is_not_removed() -> None:
    with serving(remove=REMOVED) as engine:
        order = engine.order(SEED).last
        drawn = [int(order.substitute(1, key).index[0]) for key in np.arange(800).reshape(400, 2)]
    assert {*range(N)} - {*drawn} == {*REMOVED}


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": sample["x"] * 2}


@pytest.mark.parametrize(
    "transforms",
    [["cache"], [{"map": {"function": double, "python": True}}]],
    ids=["cache", "python map"],
)
def test_added_python_data_is_read_behind_other_sources(transforms: list[Any]) -> None:
    factor = 1 if transforms == ["cache"] else 2
    values = [{"x": np.int64(n)} for n in range(10, 14)]
    python = {"python": values, "identity": "v1"}
    arrays = {"arrays": {"x": np.arange(10)}}
    options = {"transforms": transforms, "shuffle": {"seed": 3}}
    for source, added in ((arrays, python), (python, arrays)):
        with serving(source=source, add=[added], **options) as engine:
            batches = read(engine, 14)
        found = {
            int(sample): int(x)
            for batch in batches
            for sample, x in zip(batch.sample_ids, batch.arrays["x"], strict=True)
        }
        order = [*range(14)] if source is arrays else [*range(10, 14), *range(10)]
        assert [found[sample] for sample in range(14)] == [factor * x for x in order]


@pytest.mark.parametrize("then", ["substitute", "shrink"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_an_audit_of_the_whole_is_exact(
    shared: Callable[..., Any], tmp_path: Path, then: str, world_size: int
) -> None:
    for name, count in (("a", 50), ("b", 13)):
        np.savez(tmp_path / f"{name}.npz", x=np.arange(count))
    (tmp_path / "gone.txt").write_text("7\n55\n12\n")
    definition = {
        "source": {"arrays": "a.npz"},
        "add": [{"arrays": "b.npz"}],
        "remove": {"samples": "gone.txt", "then": then},
        "skip": [[2, 4], [14, 17]],
        "shuffle": {"order": "stable", "seed": 3},
        "batch": 4,
    }
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"pipelines": {"numbers": definition}}))
    server = shared(from_yaml(str(tmp_path / "p.yaml")))
    report = audit(str(server.address), "numbers", world_size=world_size, epochs=2)
    assert report.exact, report.findings()
    count, removed = (63, 3) if then == "substitute" else (60, 0)
    assert report.spec.sample_count == count
    assert report.outcome.end == 2 * count - 5 * 4
    assert sum(epoch.left_out for epoch in report.epochs) == 5 * 4
    assert report.total("substituted") <= 2 * removed
