"""An observer of fake engines with trainers that have reported, for the control plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.harness.clock import ManualClock

from infeed.shared.errors import SourceError
from infeed.shared.report import TrainerReport
from infeed.shared.spec import Cast
from infeed.testing import FakeTransport
from infeed_observe.metrics import Metrics
from infeed_observe.observer import Observer
from infeed_observe.server_metrics import expose_server
from infeed_server.engines.figures import Figures
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.state_clock import STATES, PipelineState
from infeed_server.runtime.instruments import Facts
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.health import Health
from infeed_server.serving.instrument import ConnectedTrainer
from infeed_server.serving.refused import RefusedBatches

BAD_SAMPLE: dict[str, Any] = {
    "time": "2026-01-02T03:04:05.678+00:00",
    "sample_id": 7,
    "count": 3,
    "key": "00000000000000070000000000000009",
    "file": "/photos/<b>seven</b>.jpg",
    "offset": 4096,
    "epoch": 1,
    "position": 107,
    "stage": "transforms[0].decode_image",
    "action": "substitute",
    "reason": "BAD_SAMPLE",
    "error": 'sample 7: <img src=x onerror="document.title=1"> is no image',
}

SOURCE_ERROR = SourceError("<b>a.npz</b> changed", file="/data/a.npz", fault="changed")


def fake_engine(name: str, **values: Any) -> Any:
    """Returns what an observer uses of an engine that has waited for its transforms alone."""
    rows: dict[str, Any] = {"image": np.zeros((50, 3, 4), np.uint8), "label": np.arange(50)}
    transport = FakeTransport(
        rows, name=name, batch_size=4, seed=3, finish_transforms=[Cast("image", "float32")]
    )
    classes = {"label": ("cat", "<b>dog</b>", "owl", "pig")}
    states: dict[PipelineState, float] = dict.fromkeys(STATES, 0.0)
    budget = SimpleNamespace(held_batches=lambda _: 6, held_bytes=lambda _: 7_000)
    access = ("order", "provenance")
    return SimpleNamespace(
        spec=replace(transport.spec, classes=classes),
        states=states,
        budget=budget,
        figures=lambda: Figures(
            queued_requests=5,
            state_seconds=dict(states),
            sample_counts={"computed_samples": 30, "shared_samples": 10},
            pictures={"native": 20, "tensorflow": 4},
        ),
        bad_samples=lambda: values.get("bad", []),
        **dict.fromkeys(access, lambda *_: None),
    )


def new_observer(engines: dict[str, Any], clock: ManualClock) -> Observer:
    """Returns an observer of pipelines, and exposes its metrics."""
    health, budget = Health(), MemoryBudget(1 << 30)
    for name in engines:
        health.set(name, ready=True, reason="fine")
    facts = Facts(ServerOptions(), health, engines, budget, RefusedBatches())
    observer = Observer(facts, Metrics(version="1.2.3", tensorflow="2.21.0"), clock)
    expose_server(observer)
    observer.engines()
    return observer


def observed(*names: str, bad: Sequence[dict[str, Any]] = (BAD_SAMPLE,)) -> Observer:
    """Returns an observer of pipelines; ranks 0 and 1 of three read the first one, and rank 1 waits
    half of its time for transforms. Each second has two batches."""
    clock = ManualClock()
    engines = {name: fake_engine(name, bad=list(bad)) for name in names or ("photos",)}
    observer = new_observer(engines, clock)
    observer.facts.health.broken["scans"] = "<b>no</b> file"
    first = next(iter(engines))
    trainers = [
        ConnectedTrainer(first, rank, f"{rank}feed", f"10.0.0.{rank}:50000", 3, 4, 3, position=64)
        for rank in (0, 1)
    ]
    for trainer in trainers:
        observer.jobs.connect(trainer)
    observer.metrics.count("infeed_bad_samples", first, "substitute")
    observer.metrics.count("infeed_source_errors", first, "changed")
    observer.facts.refused.add(first, SOURCE_ERROR)
    for _ in range(12):
        for _ in range(2):
            observer.metrics.count("infeed_batches", first)
            observer.metrics.count("infeed_samples", first, amount=4)
            observer.metrics.count("infeed_sent_bytes", first, amount=1_000)
        observer.metrics.measure("infeed_stage_seconds", 0.25, first, "encode")
        engines[first].states["transform"] += 0.75
        engines[first].states["no_request"] += 0.25
        observer.update()
        clock.now += 1.0
    for trainer, wait in zip(trainers, (0.1, 5.0), strict=True):
        observer.jobs.on_report(trainer, _report(wait))
    observer.update()
    clock.now += 2.0
    return observer


def _report(wait_seconds: float) -> TrainerReport:
    return TrainerReport(
        seconds=10.0,
        steps=20,
        wait_seconds=wait_seconds,
        starved_steps=5,
        receive_seconds=0.5,
        cpu_seconds=1.0,
        finish_seconds=0.4,
        bytes=20_000,
        streams=1,
        ready_batches=3,
        total_steps=1_234,
        position=14_808,
    )
