"""Trains a model of MaxText on tokens that infeed serves, with MaxText's own program.

    infeed serve tokens.yaml
    python examples/maxtext_train.py 127.0.0.1:7470 tokens base.yml dataset_type=grain ...

The pipeline has the fields `tokens`, int64 `[max_target_length]`, and `tokens_length`. The dataset
takes the place of Grain's in MaxText's loader and checkpoints. All arguments after the pipeline
are MaxText's. Needs `pip install 'infeed[grain]'` beside MaxText.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import grain
import jax
import numpy as np
from absl import app
from maxtext.input_pipeline import data_processing_utils, input_pipeline_interface
from maxtext.input_pipeline.input_pipeline_utils import ShiftData
from maxtext.input_pipeline.multihost_dataloading import MultiHostDataLoadIterator

import infeed
from infeed.grain import FeedDataset

PAD = 0
"""The padding of the pipeline, and the id that MaxText leaves out of the loss."""


def sequences(batch: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that MaxText expects in an unpacked batch, before its shift."""
    tokens = batch["tokens"].astype(np.int32)
    position = np.arange(tokens.shape[1], dtype=np.int32)
    position = np.where(position < batch["tokens_length"][:, None], position, PAD)
    fields = {}
    for name in ("inputs", "targets"):
        fields[name] = tokens
        fields[f"{name}_segmentation"] = (tokens != PAD).astype(np.int32)
        fields[f"{name}_position"] = position
    return fields


def new_iterator(
    target: str, pipeline: str, config: Any, mesh: Any, process_indices: list[int]
) -> MultiHostDataLoadIterator:
    """Returns what MaxText's `make_grain_train_iterator` returns, but over a feed."""
    dataset: grain.IterDataset = FeedDataset(
        target,
        pipeline,
        shard=infeed.Shard(process_indices.index(jax.process_index()), len(process_indices)),
        batch_size=data_processing_utils.get_local_batch_size(config),
        epochs=config.num_epoch,
    )
    dataset = dataset.map(sequences).map(ShiftData(ignored_ids=[PAD], axis=1))
    return MultiHostDataLoadIterator(
        dataset,
        mesh,
        config.generate_padding_batch_train,
        expansion_loading_factor_for_grain=config.expansion_factor_real_data,
    )


def main() -> None:
    """Runs MaxText's program with this iterator."""
    from maxtext.trainers.pre_train import train

    program, target, pipeline, *options = sys.argv
    input_pipeline_interface.make_grain_train_iterator = partial(new_iterator, target, pipeline)
    app.run(train.main, [program, *options])


if __name__ == "__main__":
    main()
