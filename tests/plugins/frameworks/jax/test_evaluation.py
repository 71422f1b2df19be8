"""Tests of an evaluation over two devices: every sample once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import infeed  # noqa: E402
import infeed.jax  # noqa: E402
from infeed.testing import FakeTransport  # noqa: E402

COUNT, CLASSES = 100, 5
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(COUNT, 3)).astype(np.float32)
LABELS = RANDOM.integers(0, CLASSES, COUNT).astype(np.int32)
WEIGHTS = RANDOM.normal(size=(3, CLASSES)).astype(np.float32)


def connect(**options: Any) -> infeed.jax.DeviceFeed:
    mesh = Mesh(jax.devices()[:2], ("data",))
    return infeed.jax.connect(
        "fake",
        "fake",
        transport=FakeTransport({"x": X, "label": LABELS}, seed=3),
        sharding=NamedSharding(mesh, PartitionSpec("data")),
        global_batch_size=32,
        epochs=1,
        remainder="pad",
        **options,
    )


@jax.jit
def sums(x: Any, labels: Any, counted: Any) -> Any:
    """Returns the losses, the right guesses and the samples of a batch, summed."""
    logits = x @ WEIGHTS
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]
    right = logits.argmax(1) == labels
    return jnp.stack([jnp.where(counted, value, 0).sum() for value in (losses, right, counted)])


@pytest.mark.parametrize("marked_by", [{"mask": "valid"}, {"empty": {"label": -100}}])
def test_evaluation_on_two_devices(marked_by: Any) -> None:
    exact = np.asarray(sums(X, LABELS, np.ones(COUNT, bool)))
    with connect(**marked_by) as batches:
        total = sum(
            sums(batch["x"], batch["label"], batch.get("valid", batch["label"] != -100))
            for batch in batches
        )
    np.testing.assert_allclose(total, exact, rtol=1e-5)
    assert total[2] == COUNT


def test_evaluation_that_would_count_empty_slots_is_refused() -> None:
    with (
        connect() as batches,
        pytest.raises(infeed.InvalidRequestError, match=r'shapes are static.*mask="valid"'),
    ):
        next(batches)
