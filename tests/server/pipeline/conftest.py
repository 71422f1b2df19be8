"""The same pipeline on both engines, for the tests of what is spread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed_server.engines.base import HostBatch, Request, Trainer
from infeed_server.engines.build import build
from infeed_server.engines.monitor import Silent
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.spread import Variant, plan_spread


@pytest.fixture
def local_batches(tmp_path: Path) -> Callable[[Pipeline, Variant], list[HostBatch]]:
    """What the local engine gives to one trainer that asks for such batches."""

    def run(definition: Pipeline, variant: Variant) -> list[HostBatch]:
        quarantine = {"quarantine": str(tmp_path / "bad.jsonl")}
        engine = build("one", definition.model_copy(update=quarantine), Silent())
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
            session.sent()
        session.close()
        engine.close()
        return batches

    return run


@pytest.fixture
def spread_batches() -> Callable[[Pipeline, Variant], list[SimpleNamespace]]:
    """What the spread plan's dataset gives, read in this process: `fields` and the rest."""

    def run(definition: Pipeline, variant: Variant) -> list[SimpleNamespace]:
        dataset = plan_spread("one", definition).dataset(variant)
        return [
            SimpleNamespace(
                fields={name: value.numpy() for name, value in fields.items()},
                **{name: value.numpy() for name, value in about.items()},
            )
            for fields, about in dataset
        ]

    return run


@pytest.fixture
def assert_equal(local_batches: Any, spread_batches: Any) -> Callable[..., list[SimpleNamespace]]:
    """Both engines give the same bits; returns the batches."""

    def check(definition: Pipeline, variant: Variant) -> list[SimpleNamespace]:
        wanted = local_batches(definition, variant)
        got = spread_batches(definition, variant)
        assert len(got) == len(wanted) > 0
        for batch, other in zip(got, wanted, strict=True):
            assert (batch.start, batch.epoch) == (other.start, other.epoch)
            assert np.array_equal(batch.sample_ids, other.sample_ids)
            assert np.array_equal(batch.mask, other.mask)
            assert batch.fields.keys() == other.arrays.keys()
            for name, array in other.arrays.items():
                assert batch.fields[name].dtype == array.dtype
                assert np.array_equal(batch.fields[name], array), name
        return got

    return check
