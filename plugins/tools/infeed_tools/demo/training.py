"""The demo's trainer: a small Keras model that reads from infeed."""

from __future__ import annotations

import time

import keras
from rich.console import Console

import infeed
from infeed.tensorflow import from_generator
from infeed_tools.demo.shapes import SHAPES, SIZE


def train(
    target: str, training: str, test: str, epochs: int, console: Console
) -> tuple[float, float, infeed.Stats]:
    """Trains on one pipeline; returns the accuracy on another, images/s, and the feed's stats."""
    keras.utils.set_random_seed(17)
    model = _model()
    with infeed.connect(target, training) as feed:
        steps = (feed.spec.sample_count or 0) // feed.batch_size
        started = time.perf_counter()
        model.fit(
            from_generator(feed),
            epochs=epochs,
            steps_per_epoch=steps,
            shuffle=False,  # the pipeline does
            verbose=1 if console.is_terminal else 2,  # a progress bar, or a line for each epoch
        )
        seconds = time.perf_counter() - started
        stats = feed.stats()
    with infeed.connect(target, test, epochs=1, remainder="pad") as feed:
        scores = model.evaluate(from_generator(feed), verbose=0, return_dict=True)
    images = epochs * steps * feed.batch_size
    return float(scores["accuracy"]), images / seconds, stats


def _model() -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(len(SHAPES), activation="softmax"),
        ]
    )
    optimizer, loss = keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy"
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model
