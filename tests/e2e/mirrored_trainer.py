"""Keras under MirroredStrategy on two virtual devices, fed by the workers of a data service.

    python mirrored_trainer.py TARGET PIPELINE

Prints a line of JSON: the losses of two epochs, and the number of replicas.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import tensorflow as tf

import infeed.tensorflow

STEPS = 6


def main(target: str, pipeline: str) -> None:
    warnings.filterwarnings("error", category=UserWarning, module="infeed")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def feed(context: Any) -> tf.data.Dataset:
        assert context.num_replicas_in_sync == 2
        return infeed.tensorflow.distribute(target, pipeline)

    data = strategy.distribute_datasets_from_function(feed)
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(1000)],
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
    history = model.fit(data, epochs=2, steps_per_epoch=STEPS, verbose=0)
    result = {"losses": history.history["loss"], "replicas": strategy.num_replicas_in_sync}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
