"""What cannot run on the workers of the tf.data service, said before anything is registered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from infeed.errors import ConfigError
from infeed_server.pipeline import graph
from infeed_server.sources import DatasetSource, Source
from infeed_server.sources.determinism import stages
from infeed_server.transforms import Map
from infeed_server.transforms.lint import python_nodes

LIMIT_BYTES = 512 << 20
"""Of constants in a graph. A dataset is registered as one message, of 2 GiB at most, and those
who pass it on hold it several times over."""

_INSTEAD = "write it with TensorFlow operations, or use --engine local"

_STAGE = re.compile(r"Dataset_(flat_map|group_by_window|take_while|[a-z]+)_(.+)")
"""What TensorFlow calls the graph of a stage's function: the method, then the function."""


def refuse_python_steps(source: Source, steps: Sequence[graph.Step]) -> None:
    """Raises `ConfigError` for the first step that calls Python for each sample."""
    before = graph.trace(source, steps)
    for place, (ordinal, step) in enumerate(steps):
        if not isinstance(step, Map):
            continue
        traced = tf.function(step.apply, autograph=False)
        found = python_nodes(traced.get_concrete_function(before[place], graph.KEY_SPEC).graph)
        if found:
            where = f"transforms[{ordinal}].{step.name}"
            raise ConfigError(
                f"{where}: {step.called} calls Python for each sample ({_first(found)}), which "
                f"the workers of the tf.data service cannot do; {_INSTEAD}",
                stage=where,
            )


def refuse_python_stages(source: DatasetSource, dataset: tf.data.Dataset) -> None:
    """Raises `ConfigError` when a stage of a user's dataset calls Python for its elements."""
    for stage in stages(dataset):
        for function in stage._functions():
            found = python_nodes(function.function.graph)
            if found:
                raise ConfigError(
                    f"source.dataset: the stage {_called(function.function.graph)} of "
                    f"{source.label} calls Python for its elements ({_first(found)}), which the "
                    f"workers of the tf.data service cannot do; {_INSTEAD}",
                    stage="source.dataset",
                )


def require_size(place: str, size: int, limit: int, instead: str = "") -> None:
    """Raises `ConfigError` when what a source at `place` holds is too much for a graph."""
    if size > limit:
        raise ConfigError(
            f"{place}: the graph that is sent to the workers of the tf.data service would hold "
            f"{_mib(size)} of it, over the limit of {_mib(limit)}; {instead}use --engine local",
            stage=place,
        )


def constant_bytes(dataset: tf.data.Dataset) -> int:
    """What the arrays take that a user's dataset holds, and its functions."""
    size = 0
    for stage in stages(dataset):
        size += sum(map(_bytes, getattr(stage, "_tensors", ())))
        for function in stage._functions():
            traced = function.function
            size += sum(map(_bytes, traced.captured_inputs))
            size += traced.graph.as_graph_def().ByteSize()
    return size


def _bytes(tensor: Any) -> int:
    if tensor.dtype == tf.string:
        return sum(map(len, tensor.numpy().flat))
    # A table's or a variable's handle; what is behind it is not counted.
    if tensor.dtype in (tf.resource, tf.variant):
        return 0
    return int(tensor.shape.num_elements()) * int(tensor.dtype.size)


def _called(traced: tf.Graph) -> str:
    if any(operation.type == "GeneratorDataset" for operation in traced.get_operations()):
        return "from_generator"
    found = _STAGE.match(traced.name)
    return f"{found[1]}({found[2]})" if found else traced.name


def _first(nodes: set[str]) -> str:
    return min(nodes).rpartition("/")[2]


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
