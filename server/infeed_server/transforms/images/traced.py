"""Decoders as functions of a graph: traced once in a process, and prepared when first called.

The decoders of unusual files have hundreds of operations. As functions that are not inlined, they
add one call to the graph of a pipeline, and take no time where no such file comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import tensorflow as tf

from infeed_server.transforms.images.decoding import Decoding


def call_traced(
    function: Callable[..., tf.Tensor], contents: tf.Tensor, *options: Decoding
) -> tf.Tensor:
    """Calls `function(contents, *options)`, in a graph as a function of it."""
    if tf.executing_eagerly():
        # A bad sample is examined so. The error of a graph's function would have a traceback.
        return function(contents, *options)
    return trace(function, *options)(contents)


@cache
def trace(
    function: Callable[..., tf.Tensor], *options: Decoding
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function from the content of a file to the result, for every graph."""
    traced = tf.function(
        lambda contents: function(contents, *options),
        autograph=False,
        experimental_attributes={"_noinline": True},
    )
    with tf.init_scope():
        concrete: Callable[[tf.Tensor], tf.Tensor] = traced.get_concrete_function(
            tf.TensorSpec([], tf.string)
        )
    return concrete
