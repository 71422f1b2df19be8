"""A trainer under a `tf.distribute` strategy, for `test_strategies.py`; prints what it has seen.

python -m tests.plugins.frameworks.tensorflow.strategy_trainer \\
    SERVER STRATEGY FOLDER COUNT PER_REPLICA EPOCHS
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import tensorflow as tf

import infeed
import infeed.tensorflow

STRATEGIES = {
    "one_device": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
    "mirrored": lambda: tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]),
    "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
}


class Sum(tf.keras.losses.Loss):  # type: ignore[misc]
    """The sum of the outputs, for any targets."""

    def __init__(self) -> None:
        super().__init__(reduction="sum")

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred[:, 0]


def main(server: str, name: str, folder: str, count: int, per_replica: int, epochs: int) -> None:
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        devices[0], [tf.config.LogicalDeviceConfiguration()] * (2 if name == "mirrored" else 1)
    )
    strategy = STRATEGIES[name]()
    replicas = strategy.num_replicas_in_sync
    feeds = []

    def connect(shard: infeed.Shard, batch_size: int, state: Any = None) -> infeed.Feed:
        options = {"shard": shard, "batch_size": batch_size, "epochs": epochs, "state": state}
        feeds.append(infeed.connect(server, "fake", **options))
        return feeds[-1]

    def dataset_of(context: tf.distribute.InputContext) -> tf.data.Dataset:
        size = context.get_per_replica_batch_size(per_replica * replicas)
        feed = connect(infeed.tensorflow.shard_of(context), size)
        return infeed.tensorflow.from_generator(feed)

    dataset = strategy.distribute_datasets_from_function(dataset_of)
    ids = seen(strategy, dataset)
    if name == "multi_worker":
        counts = fit_on_workers(strategy, connect, folder, count, epochs)
    else:
        # Keras distributes a dataset by itself: it splits each batch over the replicas.
        feed = connect(infeed.Shard(), per_replica * replicas)
        dataset = infeed.tensorflow.from_generator(feed)
        counts = fit(strategy, dataset, feed, count, epochs)
    for feed in feeds:
        feed.close()
    ranks = [[feed.shard.rank, feed.shard.world_size] for feed in feeds]
    print(json.dumps({"ids": ids, "ranks": ranks, "counts": counts}))


def seen(strategy: Any, dataset: Any) -> list[int]:
    """Returns the ids that a training step gets."""

    @tf.function  # type: ignore[untyped-decorator]
    def step(batch: Any) -> Any:
        return strategy.run(lambda x, _: x, args=batch)

    ids: list[int] = []
    for batch in dataset:
        for part in strategy.experimental_local_results(step(batch)):
            ids += part.numpy().tolist()
    return ids


def fit(strategy: Any, dataset: Any, feed: infeed.Feed, count: int, epochs: int) -> list[int]:
    """Returns how often Keras' `fit` has trained on each sample, which the weights count."""
    with strategy.scope():
        layer = tf.keras.layers.Embedding(count, 1, embeddings_initializer="zeros")
        model = tf.keras.Sequential([layer])
        model.compile(tf.keras.optimizers.SGD(1.0), Sum(), jit_compile=False)
    # Keras takes batches to build the model; the callback keeps them for the training.
    callbacks = [infeed.tensorflow.FeedCheckpoint(feed)]
    options = {"steps_per_epoch": feed.steps_per_epoch, "epochs": epochs}
    model.fit(dataset, callbacks=callbacks, shuffle=False, verbose=0, **options)
    return [round(-float(x)) for x in model.get_weights()[0][:, 0]]


class WorkersModel(tf.keras.Model):  # type: ignore[misc]
    """A model whose metrics have the dimension that Keras averages over workers."""

    def train_step(self, data: Any) -> Any:
        return {name: x[None] for name, x in super().train_step(data).items()}


def fit_on_workers(strategy: Any, connect: Any, folder: str, count: int, epochs: int) -> list[int]:
    """Returns what `fit` returns, by the recipe of docs/tensorflow.md for several workers.

    Each epoch is trained by a run that continues the one before it.
    """
    for epoch in range(epochs):
        state = infeed.tensorflow.FeedCheckpoint.saved_state(folder)
        model, feed = fit_epoch(strategy, partial(connect, state=state), folder, count, epoch)
        assert feed.first_step == epoch * feed.steps_per_epoch
        wait_for_all(strategy)  # the first worker has written the checkpoint
    return [round(-float(x)) for x in model.get_weights()[0][:, 0]]


def fit_epoch(strategy: Any, connect: Any, folder: str, count: int, epoch: int) -> Any:
    with strategy.scope():
        inputs = tf.keras.Input((), dtype="int32")
        outputs = tf.keras.layers.Embedding(count, 1, embeddings_initializer="zeros")(inputs)
    model = WorkersModel(inputs, outputs)  # not in the scope
    feeds = []

    def dataset_of(context: tf.distribute.InputContext) -> tf.data.Dataset:
        feeds.append(connect(infeed.tensorflow.shard_of(context), 2))
        return infeed.tensorflow.from_generator(feeds[-1])

    with strategy.scope():
        model.compile(tf.keras.optimizers.SGD(1.0), Sum(), jit_compile=False)
        dataset = strategy.distribute_datasets_from_function(dataset_of)
        checkpoint = infeed.tensorflow.FeedCheckpoint(feeds[-1], folder)
        assert checkpoint.initial_epoch == epoch
        model.fit(
            dataset,
            steps_per_epoch=feeds[-1].steps_per_epoch,
            epochs=epoch + 1,
            initial_epoch=epoch,
            callbacks=[checkpoint],
            shuffle=False,
            verbose=0,
        )
    assert checkpoint.state()["position"] == (epoch + 1) * count
    return model, feeds[-1]


def wait_for_all(strategy: Any) -> None:
    def step() -> Any:
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([]))

    tf.function(lambda: strategy.run(step))()


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
