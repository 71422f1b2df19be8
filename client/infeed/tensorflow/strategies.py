"""Ranks under `tf.distribute`, and where Python can run.

def dataset_of(context):
    size = context.get_per_replica_batch_size(1024)
    shard = infeed.tensorflow.shard_of(context)
    feed = infeed.connect("localhost:7470", "photos", shard=shard, batch_size=size)
    return infeed.tensorflow.from_generator(feed)

dataset = strategy.distribute_datasets_from_function(dataset_of)
"""

from __future__ import annotations

import tensorflow as tf

from infeed.cursor import Shard
from infeed.shared.errors import ConfigError


def shard_of(context: tf.distribute.InputContext) -> Shard:
    """Returns the shard of an input pipeline of `distribute_datasets_from_function`.

    Each input pipeline is one rank. Its replicas share its feed, and each takes whole batches of
    it, so its batch size is a replica's.
    """
    return Shard(context.input_pipeline_id, context.num_input_pipelines)


def check_python_runs_here() -> None:
    """Raises `ConfigError` where datasets are placed on a remote TPU's worker, without Python."""
    with tf.init_scope():
        there = tf.constant(0).device
        with tf.device(None):  # the devices of this process
            here = tf.constant(0).device
    if _process(there) != _process(here):
        raise ConfigError(
            f"the dataset would run on {_process(there)}, and its feed is in this process, "
            f"{_process(here)}: a remote worker has no Python to read it. Train on the TPU's own "
            "host, with TPUClusterResolver('local'), or read a pipeline of the data service with "
            "infeed.tensorflow.distribute",
            device=there,
        )


def _process(device: str) -> str:
    spec = tf.DeviceSpec.from_string(device)
    return f"/job:{spec.job}/replica:{spec.replica}/task:{spec.task}"
