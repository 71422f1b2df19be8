"""A trainer of its own: a Keras model on two virtual devices, the input from a data service.

python mirrored.py DISPATCHER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import infeed.tensorflow

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.client.tensorflow.service import FakeServer

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
number = np.arange(50)
fake = FakeServer(
    sys.argv[1],
    {"image": np.full((50, 6), 2, np.uint8), "label": (number % 2).astype(np.float32)},
    batch_size=5,
    finish_transforms=[infeed.spec.Normalize("image", 2.0)],
)


def batches(context: Any = None) -> tf.data.Dataset:
    return infeed.tensorflow.distribute(
        "fake", "fake", epochs=1, sample_ids=True, label=None, target_workers="any", transport=fake
    )


seen = [int(each) for batch in batches() for each in batch["sample_ids"]]
assert sorted(seen) == number.tolist()


def pairs(context: Any) -> tf.data.Dataset:
    return batches().map(lambda batch: (batch["image"], batch["label"]))


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
fitted = model.fit(
    strategy.distribute_datasets_from_function(pairs), steps_per_epoch=5, shuffle=False, verbose=0
)
assert len(fitted.history["loss"]) == 1
print(f"{strategy.num_replicas_in_sync} replicas, {len(seen)} samples")
