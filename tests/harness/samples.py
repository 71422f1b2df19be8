"""Samples of a source, as a pipeline has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.sources.base import Source


def parse(source: Source, index: int) -> dict[str, Any]:
    """Returns one sample's fields, through a tf.data graph as a server."""
    columns = source.read(np.array([index]))
    dataset = tf.data.Dataset.from_tensor_slices(columns).map(source.parse)
    return {name: value.numpy() for name, value in next(iter(dataset)).items()}
