"""First samples of a source, which the plan inspects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed_server.pipeline.sample_graph import KEY_SPEC, sample_function
from infeed_server.sources.base import Sample, Source
from infeed_server.sources.places import example_indices
from infeed_server.transforms.base import Step

_KEY = np.zeros((1, 2), np.int64)


class FirstSamples:
    """Eight samples, spread over a source, without bad ones. They are read when first needed."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def values(self, steps: Sequence[Step], name: str) -> list[npt.NDArray[Any]]:
        """Returns a field's values after the steps; computes only what they depend on."""
        make = sample_function(self._source, steps)

        def field(columns: Sample, key: tf.Tensor) -> tf.Tensor:
            return make(columns, key)[name]

        traced = tf.function(field, autograph=False)
        function = traced.get_concrete_function(dict(self._source.columns), KEY_SPEC)
        found: list[npt.NDArray[Any]] = []
        for sample in self._samples:
            with suppress(tf.errors.OpError, UnicodeError):  # an error's text may not be UTF-8
                value = function(sample, tf.constant(_KEY[0])).numpy()
                found.append(np.asarray(value, object if isinstance(value, bytes) else None))
        return found

    @cached_property
    def _samples(self) -> list[Sample]:
        return [*self._read()]

    def _read(self) -> Iterator[Sample]:
        for index in example_indices(len(self._source)):
            with suppress(Exception):  # it is reported with its batch
                columns = self._source.read_keyed(np.array([index]), _KEY)
                yield {name: tf.constant(rows[0]) for name, rows in columns.items()}
