"""Tests of a second iteration of Keras over a generator, on the backend that KERAS_BACKEND names.

`test_backends.py` runs them for each backend, in an interpreter of its own.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from tests.plugins.frameworks.keras.on_backend import (
    COUNT,
    QUIET,
    STEPS,
    connect,
    counting_model,
    counts,
    open_feed,
)

import infeed
from infeed.keras import generator

pytestmark = [
    # Of Keras, when it reads and saves a variable, with NumPy 2.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed"),
]

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"

ERRORS: Any = infeed.InfeedError
if ON_TENSORFLOW:  # whose datasets raise an error of their own, with the message
    import tensorflow as tf

    ERRORS = (infeed.InfeedError, tf.errors.OpError)


def model_of_ids() -> Any:
    """Returns a model whose metric "ids" is the mean of the labels that were read."""
    return counting_model(metrics=[keras.metrics.MeanMetricWrapper(lambda y, _: y, name="ids")])


def fit(validation: Any, epochs: int = 3, **options: Any) -> list[float]:
    """Trains on arrays; returns the mean of the labels of each evaluation."""
    x = np.arange(COUNT, dtype=np.int32)
    options = {**QUIET, "batch_size": 4, "epochs": epochs, **options}
    history = model_of_ids().fit(x, x.astype("float32"), validation_data=validation, **options)
    return history.history["val_ids"]  # type: ignore[no-any-return]


def mean_of_first(steps: int, **options: Any) -> float:
    with connect(**options) as feed:
        return float(np.mean([next(feed)["label"] for _ in range(steps)]))


@pytest.mark.parametrize(
    ("steps", "validation_steps", "read"), [(None, None, STEPS), (4, None, 4), (None, 2, 2)]
)
def test_each_evaluation_reads_the_same_batches_with_restart(
    steps: int | None, validation_steps: int | None, read: int
) -> None:
    with connect(epochs=1) as feed:
        validation = generator(feed, steps=steps, restart=True)
        means = fit(validation, validation_steps=validation_steps)
    assert means == pytest.approx([mean_of_first(read)] * 3)


def test_restart_begins_where_the_feed_began() -> None:
    with connect() as feed:
        next(feed)
        state = feed.state()
    with connect(state, epochs=1) as feed:
        next(feed)  # a batch that was read before counts no more
        means = fit(generator(feed, restart=True))
    assert means == pytest.approx([mean_of_first(STEPS - 1, state=state)] * 3)


@pytest.mark.parametrize(("options", "steps"), [({"epochs": 1}, None), ({"epochs": 9}, 4), ({}, 4)])
def test_another_evaluation_without_restart_is_refused(options: Any, steps: int | None) -> None:
    remedy = r"validation_data, use infeed\.keras\.generator\(feed, restart=True\)"
    with connect(**options) as feed:
        assert len(fit(generator(feed), epochs=1, validation_steps=steps)) == 1
    with connect(**options) as feed, pytest.raises(ERRORS, match=remedy):
        fit(generator(feed), epochs=2, validation_steps=steps)


def test_further_epochs_of_a_feed_without_them_are_refused() -> None:
    model = counting_model()
    remedy = r"more epochs of fit, call fit\(\.\.\., steps_per_epoch=feed\.steps_per_epoch\)"
    with connect(epochs=1) as feed, pytest.raises(ERRORS, match=f"(?i){remedy}"):
        model.fit(generator(feed), epochs=3, **QUIET)
    assert counts(model) == [1] * COUNT


@pytest.mark.parametrize("epochs", [None, 3])
def test_an_epoch_of_fit_is_one_of_the_feed(epochs: int | None) -> None:
    model = counting_model()
    with connect(epochs=epochs) as feed:
        options = {"steps_per_epoch": STEPS, "epochs": 3, **QUIET}
        if ON_TENSORFLOW:  # which prefetches, when it builds a model
            model.build((None,))
        model.fit(generator(feed), **options)
    assert counts(model) == [3] * COUNT


def test_an_order_of_keras_is_refused() -> None:
    keras.utils.set_random_seed(1)  # one order of 720 is the feed's
    with connect(epochs=1) as feed, pytest.raises(ERRORS, match=r"call fit\(.*shuffle=False"):
        counting_model().fit(generator(feed), verbose=0)


def test_data_of_unknown_length_need_steps() -> None:
    x = np.arange(COUNT, dtype=np.int32)
    arrays = {"x": x, "label": x.astype(np.float32)}

    def open_unknown() -> infeed.Feed:
        return open_feed(arrays, epochs=1, fake={"length_known": False})

    with open_unknown() as feed, pytest.raises(ERRORS, match=rf"generator\(feed, steps={STEPS}\)"):
        model_of_ids().evaluate(generator(feed), verbose=0)
    model = model_of_ids()  # Keras on JAX loses the weights of a model whose evaluation fails
    with open_unknown() as feed:
        result = model.evaluate(generator(feed, steps=STEPS), verbose=0, return_dict=True)
    assert result["ids"] == pytest.approx((COUNT - 1) / 2)
