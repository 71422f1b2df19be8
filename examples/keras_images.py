"""A small convolutional network on JPEGs, with any backend of Keras; a restart continues it.

    infeed serve examples/folder_csv_labels_augmented.yaml
    KERAS_BACKEND=jax python examples/keras_images.py 127.0.0.1:7470 --checkpoint run

End it at any step, even with `kill -9`, and start it again: on a CPU the result is the same, bit
for bit, as without the interruption. On the TensorFlow backend, `--strategy` trains on the chips of
a TPU's host (`tpu`), its GPUs (`gpu`), or virtual devices of the CPU, to try it there (`cpu:2`).
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any

import keras

import infeed
from infeed.keras import FeedCheckpoint


def scope_of(strategy: str) -> Any:
    """Returns the scope of a strategy of `tf.distribute`, or one without effect."""
    if not strategy:
        return nullcontext()
    import tensorflow as tf

    if strategy == "tpu":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver).scope()
    if strategy == "gpu":
        return tf.distribute.MirroredStrategy().scope()
    devices = [tf.config.LogicalDeviceConfiguration()] * int(strategy.removeprefix("cpu:"))
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    names = [device.name for device in tf.config.list_logical_devices("CPU")]
    return tf.distribute.MirroredStrategy(names).scope()


def new_model(shape: tuple[int, ...], classes: int) -> Any:
    """Returns a network for images of that shape; its first weights are always the same."""

    def seed(number: int) -> Any:
        return keras.initializers.GlorotUniform(number)

    model = keras.Sequential(
        [
            keras.Input(shape),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu", kernel_initializer=seed(1)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu", kernel_initializer=seed(2)),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dropout(0.2, seed=3),
            keras.layers.Dense(classes, kernel_initializer=seed(4)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=False)
    return model


def batches(feed: infeed.Feed) -> Any:
    """Returns the batches of a feed, for `fit` on the backend in use."""
    if keras.backend.backend() == "tensorflow":
        return infeed.tensorflow.from_generator(feed)
    return infeed.keras.generator(feed)


def main() -> None:
    """Trains, or continues a training, and saves the weights at its end."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="address of the server")
    parser.add_argument("--pipeline", default="pictures")
    parser.add_argument("--checkpoint", default="keras_images", help="folder of the run")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--strategy", default="", help="tpu, gpu or cpu:N; default: no strategy")
    parser.add_argument("--weights", default="keras_images.weights.h5", help="file of the result")
    options = parser.parse_args()

    state = FeedCheckpoint.saved_state(options.checkpoint)  # None at the first start
    scope = scope_of(options.strategy)
    with infeed.connect(options.target, options.pipeline, state=state) as feed:
        [image] = [field for field in feed.element_spec if field.name == "image"]
        with scope:
            model = new_model(image.shape, options.classes)
        checkpoint = FeedCheckpoint(feed, options.checkpoint, save_every=options.save_every)
        model.fit(
            batches(feed),
            steps_per_epoch=feed.steps_per_epoch,
            epochs=options.epochs,
            initial_epoch=checkpoint.initial_epoch,
            callbacks=[checkpoint],
            shuffle=False,
            verbose=2,
        )
        print(feed.stats())
    model.save_weights(options.weights)


if __name__ == "__main__":
    main()
