"""Fixtures that run the same pipeline on both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed_server.engines.base import HostBatch, Request, Trainer
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.definition import Pipeline
from infeed_server.runtime.engine_factory import build
from infeed_service.graph import Variant, plan_data_service


@pytest.fixture
def local_batches(tmp_path: Path) -> Callable[[Pipeline, Variant], list[HostBatch]]:
    """Returns the batches of a variant from the local engine."""

    def run(definition: Pipeline, variant: Variant) -> list[HostBatch]:
        quarantine = {"quarantine": str(tmp_path / "bad.jsonl")}
        engine = build("one", definition.model_copy(update=quarantine), Monitor())
        size = variant.batch_size
        session = engine.open(size, variant.epochs, Trainer())
        total = (engine.spec.sample_count or 0) * variant.epochs
        end = total if variant.remainder == "pad" else total - size + 1
        batches = []
        for start in range(0, end, size):
            request = Request(variant.seed, start, min(size, total - start), size)
            answer = session.submit(request).result(60)
            assert isinstance(answer, HostBatch)
            batches.append(answer)
            session.on_sent()
        session.close()
        engine.close()
        return batches

    return run


@pytest.fixture
def graph_batches() -> Callable[[Pipeline, Variant], list[SimpleNamespace]]:
    """Returns the batches of a plan's dataset, read in this process: fields and metadata."""

    def run(definition: Pipeline, variant: Variant) -> list[SimpleNamespace]:
        dataset = plan_data_service("one", definition).dataset(variant)
        return [
            SimpleNamespace(
                fields={name: value.numpy() for name, value in fields.items()},
                **{name: value.numpy() for name, value in metadata.items()},
            )
            for fields, metadata in dataset
        ]

    return run


@pytest.fixture
def assert_equal(local_batches: Any, graph_batches: Any) -> Callable[..., list[SimpleNamespace]]:
    """Checks that both engines make the same bits; returns the batches."""

    def check(definition: Pipeline, variant: Variant) -> list[SimpleNamespace]:
        expected = local_batches(definition, variant)
        actual = graph_batches(definition, variant)
        assert len(actual) == len(expected) > 0
        for batch, other in zip(actual, expected, strict=True):
            assert (batch.start, batch.epoch) == (other.start, other.epoch)
            assert np.array_equal(batch.sample_ids, other.sample_ids)
            assert np.array_equal(batch.mask, other.mask)
            assert batch.fields.keys() == other.arrays.keys()
            for name, array in other.arrays.items():
                assert batch.fields[name].dtype == array.dtype
                assert np.array_equal(batch.fields[name], array), name
        return actual

    return check
