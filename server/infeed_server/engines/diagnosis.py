"""Finding the bad sample: what a batch could not do is done again, one sample at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from infeed.errors import InfeedError, SampleError, SourceError, UserCodeError
from infeed.spec import Array
from infeed_server.pipeline import graph
from infeed_server.sources import Source


@dataclass(frozen=True)
class Finding:
    """What is wrong with a sample. `keyed`: with another key it may be good."""

    error: InfeedError
    keyed: bool


def examine(source: Source, steps: Sequence[graph.Step], index: int, key: Array) -> Finding | None:
    """What is wrong with one sample; None when nothing is."""
    stage: str | graph.Step = "read"
    keyed = False
    try:
        columns = source.read(np.array([index], np.int64))
        sample = {name: tf.constant(rows[0]) for name, rows in columns.items()}
        stage = "parse"
        sample = source.parse(sample)
        for step in steps:
            stage = step
            keyed = keyed or step[1].random
            sample = graph.run(step, sample, tf.constant(key))
    except SampleError as error:
        return Finding(error, keyed)
    except SourceError:
        raise  # A file that is gone or another one: no sample's fault.
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything
        return Finding(_describe(source, index, stage, error), keyed)
    return None


def _describe(source: Source, index: int, stage: str | graph.Step, error: Exception) -> InfeedError:
    place = source.provenance(index)
    name = stage if isinstance(stage, str) else f"transforms[{stage[0]}].{stage[1].written}"
    where = {"sample_id": index, "file": place.file, "offset": place.offset, "stage": name}
    head = f"sample {index} ({place}): {name}: "
    if isinstance(error, UserCodeError):
        return UserCodeError(head + error.message, **where)
    return SampleError(head + _one_line(error), **where)


def _one_line(error: Exception) -> str:
    # TensorFlow wraps the kernel's words: "{{function_node ...}} Input is empty. [Op:Decode...]".
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    text = text.rpartition("}} ")[2].partition(" [Op:")[0]
    return " ".join(text.split()) or type(error).__name__
