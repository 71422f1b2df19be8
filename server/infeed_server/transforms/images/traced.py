"""Decoders as functions of a graph: traced once in a process, and prepared when first called.

The decoders of unusual files have hundreds of operations. As functions that are not inlined, they
add one call to the graph of a pipeline, and take no time where no such file comes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import tensorflow as tf


def call_traced(
    function: Callable[..., tf.Tensor], *tensors: tf.Tensor, options: tuple[Hashable, ...] = ()
) -> tf.Tensor:
    """Calls `function(*tensors, *options)`, in a graph as a function of it."""
    if tf.executing_eagerly():
        # A bad sample is examined so. The error of a graph's function would have a traceback.
        return function(*tensors, *options)
    specs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors)
    return trace(function, specs, options)(*tensors)


@cache
def trace(
    function: Callable[..., tf.Tensor],
    specs: tuple[tf.TensorSpec, ...],
    options: tuple[Hashable, ...] = (),
) -> Callable[..., tf.Tensor]:
    """Returns the function from tensors of these specs to the result, for every graph."""
    traced = tf.function(
        lambda *tensors: function(*tensors, *options),
        autograph=False,
        experimental_attributes={"_noinline": True},
    )
    with tf.init_scope():
        concrete: Callable[..., Any] = traced.get_concrete_function(*specs)
    return concrete
