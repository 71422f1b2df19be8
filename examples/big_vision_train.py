"""Trains a model of big_vision on images that infeed serves, with big_vision's own program.

    infeed serve images.yaml
    python examples/big_vision_train.py 127.0.0.1:7470 images --config CONFIG --workdir FOLDER

The pipeline has the fields `image` and `labels`, as the configuration's `input.pp`, which is not
read, would make them. All arguments after the pipeline are big_vision's. A restarted run continues
with the batch after its checkpoint; big_vision alone would begin another shuffle.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import jax
import tensorflow as tf
from absl import app
from big_vision import input_pipeline, train, utils
from jax.sharding import Mesh, PartitionSpec

import infeed

original_start_global = input_pipeline.start_global
original_save, original_load = utils.save_checkpoint_ts, utils.load_checkpoint_ts


class ServedData:
    """Stands in for the training's tf.data.Dataset, and has the functions that replace its own."""

    def __init__(self, target: str, pipeline: str) -> None:
        self.target, self.pipeline = target, pipeline
        with infeed.connect(target, pipeline) as feed:
            self.samples = feed.spec.sample_count
            self.element_spec = {
                field.name: tf.TensorSpec((feed.batch_size, *field.shape), field.data_type)
                for field in feed.element_spec
            }

    def training(self, input_config: Any) -> tuple[ServedData, int | None]:
        """Returns the data, and the number of samples of an epoch."""
        self.batch_size = input_config.batch_size
        return self, self.samples

    def start_global(self, data: Any, devices: Any, *arguments: Any, **options: Any) -> Any:
        """Returns the iterator over global batches; for an evaluator's data, big_vision's own."""
        if data is not self:
            return original_start_global(data, devices, *arguments, **options)
        self.batches = infeed.jax.connect(
            self.target,
            self.pipeline,
            sharding=(Mesh(devices, ("devices",)), PartitionSpec("devices")),
            global_batch_size=self.batch_size,
        )
        return self.batches

    def save(self, manager: Any, state: Any, path: str, step: int, keep: bool = True) -> None:
        """Saves the cursor, and then the state, which completes the checkpoint."""
        if jax.process_index() == 0:
            with tf.io.gfile.GFile(f"{path}-{step:09}.json", "w") as file:
                json.dump(self.batches.state(), file)
        original_save(manager, state, path, step, keep)

    def load(self, path: str, **options: Any) -> Any:
        """Loads the newest checkpoint of a run; its data continues after that step."""
        with tf.io.gfile.GFile(f"{path}-LAST") as file:
            step = file.read().strip().removesuffix("-tmp")
        with tf.io.gfile.GFile(f"{path}-{step}.json") as file:
            self.batches.load_state(json.load(file))
        return original_load(path, **options)


def main(arguments: Sequence[str]) -> None:
    """Runs big_vision's program on the data of `target` and `pipeline`."""
    _, target, pipeline = arguments
    data = ServedData(target, pipeline)
    input_pipeline.training, input_pipeline.start_global = data.training, data.start_global
    utils.save_checkpoint_ts, utils.load_checkpoint_ts = data.save, data.load
    train.main(arguments)


if __name__ == "__main__":
    app.run(main, sys.argv)
