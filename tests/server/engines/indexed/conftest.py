"""A fixture: pipelines over known numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed_server import Pipeline
from infeed_server.pipeline.load import parse


@pytest.fixture(scope="session")
def numbers() -> Callable[..., Pipeline]:
    """`numbers(**options)`: a pipeline of 40 samples; sample i has x = i, and twice = 2 i."""

    def double(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**sample, "twice": sample["x"] * 2}

    def make(**options: Any) -> Pipeline:
        defaults = {
            "source": {"arrays": {"x": np.arange(40, dtype=np.int64)}},
            "shuffle": {"seed": 5},
            "transforms": [{"map": {"function": double}}],
            "batch": {"size": 4},
        }
        return parse({**defaults, **options})

    return make
