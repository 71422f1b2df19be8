"""A `tf.data.Dataset` whose elements are the results of a Python function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Element = Any
"""A nested structure of arrays."""

Signature = Any
"""The same structure of `tf.TensorSpec`."""


def from_callable(
    function: Callable[[int], Element | None], signature: Signature
) -> tf.data.Dataset:
    """Returns a dataset whose element n is `function(n)`; it ends where the function returns None.

    n starts at 0 in each iteration. An exception in `function` becomes a TensorFlow error with its
    message. `Dataset.from_generator` makes the C allocator of the whole process return each freed
    block of 128 KiB or more to the kernel: 65 page faults for each photo, instead of 1.
    """
    return _call_for_each(tf.data.Dataset.counter(), function, signature)


def from_iterations(
    begin: Callable[[], int], function: Callable[[int], Element | None], signature: Signature
) -> tf.data.Dataset:
    """Returns such a dataset, whose function also gets the iteration's number, from `begin`."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def iteration(_: tf.Tensor) -> tf.data.Dataset:
        number = tf.numpy_function(lambda: np.int64(begin()), [], tf.int64)
        return tf.data.Dataset.from_tensors(tf.ensure_shape(number, [])).repeat()

    return _call_for_each(tf.data.Dataset.range(1).flat_map(iteration), function, signature)


def _call_for_each(
    numbers: tf.data.Dataset, function: Callable[[int], Element | None], signature: Signature
) -> tf.data.Dataset:
    specs = tf.nest.flatten(signature)
    end = (False, *(zeros(spec) for spec in specs))

    def call_function(number: Any) -> tuple[Any, ...]:
        element = function(int(number))
        return end if element is None else (True, *tf.nest.flatten(element))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(number: tf.Tensor) -> tuple[tf.Tensor, Element]:
        types = [tf.bool, *(spec.dtype for spec in specs)]
        exists, *parts = tf.numpy_function(call_function, [number], types)
        parts = [tf.ensure_shape(part, spec.shape) for part, spec in zip(parts, specs, strict=True)]
        return tf.ensure_shape(exists, []), tf.nest.pack_sequence_as(signature, parts)

    return take_elements(numbers.map(call, synchronous=True))


def take_elements(pairs: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the elements of pairs `(exists, element)` before the first that does not exist."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def is_element(exists: tf.Tensor, _: Element) -> tf.Tensor:
        return exists

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def only_element(_: tf.Tensor, element: Element) -> Element:
        return element

    # Synchronous, or tf.data would parallelize the last step, and prefetch.
    return pairs.take_while(is_element).map(only_element, synchronous=True)


def zeros(spec: tf.TensorSpec) -> Any:
    """Returns an array of zeros or empty strings; without slots, if their number varies."""
    dtype = spec.dtype.as_numpy_dtype
    shape = [size or 0 for size in spec.shape]
    return np.full(shape, b"" if dtype is object else 0, dtype)
