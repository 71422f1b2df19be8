"""Ranks and replicas under `tf.distribute`.

def dataset_of(context):
    size = context.get_per_replica_batch_size(1024)
    shard = infeed.tensorflow.shard_of(context)
    feed = infeed.connect("localhost:7470", "photos", shard=shard, batch_size=size)
    return infeed.tensorflow.from_generator(feed)

dataset = strategy.distribute_datasets_from_function(dataset_of)
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from infeed.cursor import Shard
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError


@dataclass(frozen=True)
class PipelineShard(Shard):
    """The shard of an input pipeline, and the replicas that share it."""

    replicas: int = 1


def shard_of(context: tf.distribute.InputContext) -> Shard:
    """Returns the shard of an input pipeline of `distribute_datasets_from_function`.

    Each input pipeline is one rank. Its replicas share its feed, and each takes whole batches of
    it, so its batch size is a replica's.
    """
    pipelines = context.num_input_pipelines
    return PipelineShard(
        context.input_pipeline_id, pipelines, context.num_replicas_in_sync // pipelines
    )


def replicas_of(replicas: int | None, shard: Shard | None, *, is_required: bool) -> int:
    """Returns the replicas that each take whole batches. Raises `InvalidRequestError` if they are
    required, and unknown in the scope of a strategy with several."""
    if replicas is not None:
        return check_integer("replicas", replicas, 1)
    if isinstance(shard, PipelineShard):
        return shard.replicas
    count = tf.distribute.get_strategy().num_replicas_in_sync
    if is_required and count > 1:
        raise InvalidRequestError(
            f"a strategy with {count} replicas is in scope; if each takes whole batches, "
            "TensorFlow drops a last step without a batch for each. For "
            "distribute_datasets_from_function, connect with shard=infeed.tensorflow.shard_of("
            "context), or give replicas=context.num_replicas_in_sync // "
            "context.num_input_pipelines; if Keras or experimental_distribute_dataset splits each "
            "batch, give replicas=1"
        )
    return 1
