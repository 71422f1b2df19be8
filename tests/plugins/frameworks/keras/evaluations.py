"""Tests of exact evaluations on the backend that KERAS_BACKEND names: samples that fill no batch.

`test_backends.py` runs them for each backend, in an interpreter of its own.
"""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import pytest

import infeed
from infeed.keras import generator
from infeed.shared.errors import InvalidRequestError
from infeed.testing import FakeTransport

# Of Keras, when it reads a variable, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

BATCH_SIZE = 32
QUIET = {"shuffle": False, "verbose": 0}

DATA = [generator]
if keras.backend.backend() == "tensorflow":
    from infeed.tensorflow import from_generator

    DATA.append(from_generator)


def arrays(count: int) -> dict[str, Any]:
    draws = np.random.default_rng(7)
    return {"x": draws.normal(size=(count, 3)).astype("float32"), "label": np.arange(count) % 3}


def connect(samples: dict[str, Any], **options: Any) -> infeed.Feed:
    fake = FakeTransport(samples, batch_size=BATCH_SIZE, seed=1)
    return infeed.connect("fake", "fake", transport=fake, epochs=1, remainder="pad", **options)


def model_of_logits(**options: Any) -> Any:
    """Returns a model whose outputs are its inputs after any training."""
    inputs = keras.Input((3,))
    layer = keras.layers.Dense(3, kernel_initializer=keras.initializers.Identity())
    model = keras.Model(inputs, layer(inputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss, **({"metrics": ["accuracy"]} | options))
    return model


def exact(samples: dict[str, Any]) -> list[float]:
    """Returns loss and accuracy over the samples."""
    x, y = samples["x"].astype(float), samples["label"]
    losses = np.log(np.exp(x).sum(-1)) - x[np.arange(len(x)), y]
    return [float(losses.mean()), float((x.argmax(-1) == y).mean())]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("count", [39, 100, 128])
def test_an_evaluation_is_exact(count: int, data: Any) -> None:
    samples, model = arrays(count), model_of_logits()
    with connect(samples) as feed:
        assert model.evaluate(data(feed), verbose=0) == pytest.approx(exact(samples))
    with connect(samples) as feed:
        assert len(model.predict(data(feed), steps=feed.steps_per_epoch, verbose=0)) == count


@pytest.mark.parametrize("training", DATA)
def test_a_validation_is_exact(training: Any) -> None:
    samples = arrays(39)
    fake = FakeTransport(samples, batch_size=4)
    with infeed.connect("fake", "fake", transport=fake) as feed, connect(samples) as validation:
        history = (
            model_of_logits()
            .fit(
                training(feed),
                steps_per_epoch=feed.steps_per_epoch,
                epochs=2,
                validation_data=generator(validation, restart=True),
                **QUIET,
            )
            .history
        )
    values = [history["val_loss"], history["val_accuracy"]]
    assert values == [pytest.approx([value] * 2) for value in exact(samples)]


@pytest.mark.parametrize("data", DATA)
def test_a_rank_without_samples_in_its_last_batch_is_exact(data: Any) -> None:
    samples = arrays(45)
    options: dict[str, Any] = {"shard": infeed.Shard(1, 2), "batch_size": 10}
    with connect(samples, **options) as feed:
        ids = np.concatenate([batch.sample_ids[batch.mask] for batch in feed])
        assert (len(ids), feed.steps) == (20, 3)
    own = {name: array[ids] for name, array in samples.items()}
    with connect(samples, **options) as feed:
        assert model_of_logits().evaluate(data(feed), verbose=0) == pytest.approx(exact(own))


@pytest.mark.parametrize("data", DATA)
def test_weights_make_weighted_metrics_exact(data: Any, caplog: pytest.LogCaptureFixture) -> None:
    samples = arrays(100)
    model = model_of_logits(metrics=None, weighted_metrics=["accuracy"])
    with connect(samples) as feed, caplog.at_level(logging.WARNING):
        _, accuracy = model.evaluate(data(feed, mask=True), verbose=0)
    assert accuracy == pytest.approx(exact(samples)[1])
    (record,) = [record for record in caplog.records if record.name.startswith("infeed")]
    assert "the loss and predict count them. With mask=False they are cut" in record.message


def test_class_weights_are_those_of_keras() -> None:
    samples, class_weight = arrays(39), {0: 0.5, 2: 3.0}
    weights = np.array([0.5, 1.0, 3.0])[samples["label"]]
    with connect(samples) as feed:
        loss = model_of_logits(metrics=None).evaluate(
            generator(feed, class_weight=class_weight), verbose=0
        )
    x = samples["x"].astype(float)
    losses = np.log(np.exp(x).sum(-1)) - x[np.arange(39), samples["label"]]
    assert loss == pytest.approx((losses * weights).mean())


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="needs devices of JAX")
def test_batches_that_keras_divides_must_not_become_shorter() -> None:
    distribution = keras.distribution.DataParallel()
    keras.distribution.set_distribution(distribution)
    try:
        with connect(arrays(39)) as feed:
            generator(feed, mask=True)
            with pytest.raises(InvalidRequestError, match=r"over 2 devices; use infeed\.keras\.g"):
                generator(feed)
    finally:
        keras.distribution.set_distribution(None)
