"""Evaluations under `MirroredStrategy` on two devices, for `test_strategies.py`; prints results.

python -m tests.plugins.frameworks.tensorflow.strategy_evaluation COUNT BATCH_SIZE
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import infeed
import infeed.tensorflow
from infeed.tensorflow import from_generator, shard_of
from infeed.testing import FakeTransport


def main(count: int, batch_size: int) -> None:
    strategy = two_devices()
    draws = np.random.default_rng(7)
    x = draws.normal(size=(count, 3)).astype("float32")
    fake = FakeTransport({"x": x, "label": np.arange(count) % 3}, batch_size=batch_size)

    def connect(remainder: str = "pad", **options: Any) -> infeed.Feed:
        fixed = {"transport": fake, "epochs": 1, "remainder": remainder}
        return infeed.connect("fake", "fake", **fixed, **options)

    def own(remainder: str = "pad", **options: Any) -> list[float]:
        """Returns the samples that a loop of one's own reads, and those that the feed counts."""
        feeds = []

        def dataset_of(context: Any) -> Any:
            feeds.append(connect(remainder, shard=shard_of(context)))
            return from_generator(feeds[-1], **options)

        read = samples_of(strategy, strategy.distribute_datasets_from_function(dataset_of))
        return [read, feeds[0].state()["position"]]

    with strategy.scope():
        model = model_of_logits()
    with connect() as feed:
        evaluation = from_generator(feed, restart=True)
        by_keras = [model.evaluate(evaluation, verbose=0), *validations(model, evaluation)]
    try:
        with strategy.scope():
            from_generator(connect("drop"))
    except infeed.InvalidRequestError as error:
        refusal = str(error)
    results = {"cut": own(), "kept": own(mask=True), "drop": own("drop"), "refusal": refusal}
    print(json.dumps({**results, "keras": by_keras}))


def two_devices() -> Any:
    """Returns a strategy with two replicas on the CPU."""
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def samples_of(strategy: Any, dataset: Any) -> float:
    """Returns the sum of the weights, or of the slots, over all replicas."""

    @tf.function  # type: ignore[untyped-decorator]
    def step(*batch: Any) -> Any:
        _, y, *weights = batch
        return tf.reduce_sum(weights[0]) if weights else tf.cast(tf.shape(y)[0], tf.float32)

    parts = [strategy.run(step, args=batch) for batch in dataset]
    return float(sum(strategy.reduce("SUM", part, axis=None) for part in parts))


def validations(model: Any, dataset: Any) -> Any:
    """Returns loss and accuracy of two validations."""
    x, y = np.zeros((4, 3), np.float32), np.zeros(4)
    options = {"validation_data": dataset, "epochs": 2, "verbose": 0}
    history = model.fit(x, y, batch_size=2, **options).history
    return list(zip(history["val_loss"], history["val_accuracy"], strict=True))


def model_of_logits() -> Any:
    """Returns a model whose outputs are its inputs after any training."""
    inputs = tf.keras.Input((3,))
    layer = tf.keras.layers.Dense(3, kernel_initializer=tf.keras.initializers.Identity())
    model = tf.keras.Model(inputs, layer(inputs))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.0), loss, metrics=["accuracy"], jit_compile=False)
    return model


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
