"""Ranks under `tf.distribute`.

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


def shard_of(context: tf.distribute.InputContext) -> Shard:
    """Returns the shard of an input pipeline of `distribute_datasets_from_function`.

    Each input pipeline is one rank. Its replicas share its feed, and each takes whole batches of
    it, so its batch size is a replica's.
    """
    return Shard(context.input_pipeline_id, context.num_input_pipelines)
