"""Tests of `fit`, `evaluate` and `predict` on the backend that KERAS_BACKEND names.

`test_backends.py` runs them for each backend, in an interpreter of its own.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.harness import doc_blocks

import infeed
from infeed.keras import FeedCheckpoint, generator
from infeed.shared.errors import FeedClosedError, InvalidRequestError, SampleError
from infeed.testing import FakeTransport

# Of Keras, when it reads and saves a variable, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

COUNT, BATCH_SIZE = 12, 2
STEPS = COUNT // BATCH_SIZE
QUIET = {"shuffle": False, "verbose": 0}


class Killed(Exception):  # noqa: N818 - it is no error
    """Ends `fit`, as a kill of the process does."""


class KillAfter(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if not self._left:
            raise Killed


@pytest.fixture(autouse=True)
def without_tensorflow() -> Iterator[None]:
    assert keras.backend.backend() == os.environ["KERAS_BACKEND"]
    with warnings.catch_warnings():
        # Keras tells the end of a generator by a warning.
        warnings.filterwarnings("ignore", message="Your input ran out of data")
        yield
    assert "tensorflow" not in sys.modules


def connect(state: Any = None, **options: Any) -> infeed.Feed:
    ids = np.arange(COUNT, dtype=np.int32)
    return open_feed({"x": ids, "label": ids.astype(np.float32)}, state=state, **options)


def open_feed(arrays: dict[str, Any], **options: Any) -> infeed.Feed:
    count = options.pop("fake", {})
    fake = FakeTransport(arrays, batch_size=BATCH_SIZE, seed=1, **count)
    return infeed.connect("fake", "fake", transport=fake, **options)


class Sum(keras.losses.Loss):  # type: ignore[misc]
    """The sum of the outputs, for any targets."""

    def __init__(self) -> None:
        super().__init__(reduction="sum")

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred[:, 0]


def counting_model(**options: Any) -> Any:
    """Returns a model that counts by its weights how often it was trained on each sample."""
    model = keras.Sequential([keras.layers.Embedding(COUNT, 1, embeddings_initializer="zeros")])
    model.compile(keras.optimizers.SGD(1.0), Sum(), **options)
    return model


def counts(model: Any) -> list[int]:
    return [round(-x) for x in model.get_weights()[0][:, 0].tolist()]


# --- fit ---


# The torch backend refuses others.
STEPS_PER_EXECUTION = [1] if keras.backend.backend() == "torch" else [1, 2, 3]


@pytest.mark.parametrize("steps_per_execution", STEPS_PER_EXECUTION)
def test_fit_trains_on_each_sample_once_per_epoch(steps_per_execution: int) -> None:
    model = counting_model(steps_per_execution=steps_per_execution)
    with connect() as feed:
        checkpoint = FeedCheckpoint(feed)
        options = {"steps_per_epoch": feed.steps_per_epoch, "epochs": 3}
        model.fit(generator(feed), callbacks=[checkpoint], **QUIET, **options)
        assert counts(model) == [3] * COUNT
        assert checkpoint.state()["position"] == 3 * COUNT


def test_fit_ends_with_a_finite_feed() -> None:
    model = counting_model()
    with connect(epochs=2) as feed:
        history = model.fit(generator(feed), **QUIET)
        assert counts(model) == [2] * COUNT
        assert len(history.epoch) == 1
        with pytest.raises(FeedClosedError, match="ended after 12 batches, but is read again"):
            model.fit(generator(feed), **QUIET)


def test_generators_made_at_once_share_a_finite_feed() -> None:
    model = counting_model()
    with connect(epochs=2) as feed:
        for batches in (generator(feed, steps=STEPS), generator(feed)):
            model.fit(batches, **QUIET)
    assert counts(model) == [2] * COUNT


def test_batch_taken_beside_a_checkpoint_is_refused() -> None:
    with connect() as feed:
        checkpoint = FeedCheckpoint(feed)
        next(feed)
        with pytest.raises(InvalidRequestError, match="delivered 1 batches, but fit took 0"):
            counting_model().fit(
                generator(feed), steps_per_epoch=STEPS, callbacks=[checkpoint], **QUIET
            )


@pytest.mark.parametrize("mask", [False, True])
def test_empty_slots_are_not_trained_on(mask: bool) -> None:
    model = counting_model()
    numbers = np.arange(COUNT - 1, dtype=np.int32)
    arrays = {"x": numbers, "label": numbers}
    with open_feed(arrays, epochs=1, remainder="pad") as feed:
        model.fit(generator(feed, mask=mask), **QUIET)
    # The empty slot is a zero, so it would count sample 0 again.
    assert counts(model) == [1] * (COUNT - 1) + [0]


def test_an_error_of_the_feed_leaves_fit_as_itself() -> None:
    def fail(start: int) -> None:
        if start == 3 * BATCH_SIZE:
            raise SampleError("sample 7 is bad")

    model = counting_model()
    options: dict[str, Any] = {"epochs": 1, "fake": {"before_batch": fail}}
    with connect(**options) as feed, pytest.raises(SampleError, match="sample 7 is bad"):
        model.fit(generator(feed), **QUIET)
    assert sum(counts(model)) == 3 * BATCH_SIZE


# --- evaluate and predict ---


def identity_model() -> Any:
    inputs = keras.Input((1,), name="x")
    model = keras.Model(inputs, keras.layers.Activation("linear")(inputs))
    model.compile(loss="mae")
    return model


def columns(count: int = COUNT) -> dict[str, Any]:
    numbers = np.arange(count, dtype=np.float32)[:, None]
    return {"x": numbers, "label": numbers + 1}


def test_predict_gives_each_sample_once() -> None:
    model = identity_model()
    for options, steps in (({"epochs": 1}, None), ({}, STEPS)):
        with open_feed(columns(), **options) as feed:
            predicted = model.predict(generator(feed), steps=steps, verbose=0)
        assert sorted(predicted[:, 0].tolist()) == list(range(COUNT))


def test_predictions_have_the_ids_of_their_samples() -> None:
    x, ids = keras.Input((1,), name="x"), keras.Input((), dtype="int32", name="id")
    model = keras.Model({"x": x, "id": ids}, {"y": keras.layers.Rescaling(2.0)(x), "id": ids})
    with open_feed(columns(COUNT - 1), epochs=1, remainder="pad") as feed:
        predicted = model.predict(generator(feed, ids="id"), verbose=0)
    assert sorted(predicted["id"].tolist()) == list(range(COUNT - 1))
    np.testing.assert_array_equal(predicted["y"][:, 0], predicted["id"] * 2)


# --- checkpoints ---


def learning_model(*, dropout_seed: int | None = 3, **options: Any) -> Any:
    first, last = (keras.initializers.GlorotUniform(seed) for seed in (1, 2))
    model = keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(4, activation="tanh", kernel_initializer=first),
            keras.layers.Dropout(0.5, seed=dropout_seed),
            keras.layers.Dense(1, kernel_initializer=last),
        ]
    )
    model.compile(keras.optimizers.Adam(0.05), "mse", **options)
    return model


def train(
    folder: Path, *callbacks: Any, epochs: int = 3, class_weight: Any = None, **options: Any
) -> list[Any]:
    """Starts or continues a run; returns the weights, also if it is killed."""
    model = learning_model(**options)
    with open_feed(columns(), state=FeedCheckpoint.saved_state(folder)) as feed:
        checkpoint = FeedCheckpoint(feed, folder, save_every=1)
        with suppress(Killed):
            model.fit(
                generator(feed, class_weight=class_weight),
                steps_per_epoch=feed.steps_per_epoch,
                epochs=epochs,
                initial_epoch=checkpoint.initial_epoch,
                callbacks=[checkpoint, *callbacks],
                **QUIET,
            )
    return [*model.get_weights(), *[np.asarray(x) for x in model.optimizer.variables]]


@pytest.mark.parametrize("steps_per_execution", STEPS_PER_EXECUTION[:2])
@pytest.mark.parametrize("killed_after", [1, 3, 7])
def test_a_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, killed_after: int, steps_per_execution: int
) -> None:
    options = {"steps_per_execution": steps_per_execution}
    whole = train(tmp_path / "whole", **options)
    train(tmp_path / "run", KillAfter(killed_after), **options)
    state = FeedCheckpoint.saved_state(tmp_path / "run")
    done = killed_after * steps_per_execution
    # The last step of an epoch is saved with its end, which a killed run does not reach.
    saved = done - steps_per_execution * (done % STEPS == 0)
    assert (state or {"position": 0})["position"] == saved * BATCH_SIZE
    resumed = train(tmp_path / "run", **options)
    assert len(resumed) == len(whole)
    for given, expected in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(given, expected)
    saved_state = FeedCheckpoint.saved_state(tmp_path / "run")
    assert saved_state is not None
    assert saved_state["position"] == 3 * COUNT


def test_a_run_with_class_weights_is_resumed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"class_weight": {3: 5.0, 7: 0.0}, "epochs": 2}
    whole = train(tmp_path / "whole", **options)
    train(tmp_path / "run", KillAfter(3), **options)
    resumed, unweighted = (train(tmp_path / "run", **options), train(tmp_path / "other", epochs=2))
    for given, expected in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(given, expected)
    assert (resumed[0] != unweighted[0]).any()


def test_dropout_without_a_seed_of_its_own_is_restored(tmp_path: Path) -> None:
    def seed_all(seed: int) -> None:  # keras.utils.set_random_seed imports TensorFlow
        random.seed(seed)
        if keras.backend.backend() == "torch":
            pytest.importorskip("torch").manual_seed(seed)

    options: dict[str, Any] = {"dropout_seed": None, "epochs": 2}
    seed_all(1)
    whole = train(tmp_path / "whole", **options)
    seed_all(1)
    train(tmp_path / "run", KillAfter(3), **options)
    seed_all(2)  # another process
    resumed = train(tmp_path / "run", **options)
    for given, expected in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(given, expected)


def test_another_end_of_fit_is_kept_in_a_continued_epoch(tmp_path: Path) -> None:
    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    train(tmp_path, KillAfter(2))
    train(tmp_path, Stop())
    state = FeedCheckpoint.saved_state(tmp_path)
    assert state is not None
    assert state["position"] == COUNT


# --- documentation ---


@pytest.mark.parametrize("code", doc_blocks.blocks("docs/keras.md"))
def test_block_of_the_page_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doc_blocks.run(code, tmp_path, monkeypatch, model=doc_blocks.image_model(keras))


# --- mistakes ---


def test_epochs_without_a_length_are_refused() -> None:
    with connect(epochs=3) as feed:
        options = {"callbacks": [FeedCheckpoint(feed)], "epochs": 3, **QUIET}
        with pytest.raises(InvalidRequestError, match="cannot tell where an epoch"):
            counting_model().fit(generator(feed), **options)


def test_an_endless_feed_without_steps_is_refused() -> None:
    with connect() as feed:
        options = {"callbacks": [FeedCheckpoint(feed)], **QUIET}
        with pytest.raises(InvalidRequestError, match=r"call fit\(\.\.\., steps"):
            counting_model().fit(generator(feed), **options)


def test_a_generator_of_another_fit_is_refused_with_a_checkpoint() -> None:
    model = counting_model()
    with connect() as feed:
        options = {"callbacks": [FeedCheckpoint(feed)], "steps_per_epoch": 1, **QUIET}
        batches = generator(feed)
        model.fit(batches, **options)
        with pytest.raises(InvalidRequestError, match=r"its own infeed\.keras\.generator"):
            model.fit(batches, **options)


def test_a_generator_older_than_the_checkpoint_is_refused() -> None:
    with connect() as feed:
        batches = generator(feed)
        options = {"callbacks": [FeedCheckpoint(feed)], "steps_per_epoch": 1, **QUIET}
        with pytest.raises(
            InvalidRequestError,
            match="FeedCheckpoint for the feed that fit reads, before its generator",
        ):
            counting_model().fit(batches, **options)
