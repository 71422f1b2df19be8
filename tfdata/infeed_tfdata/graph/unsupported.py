"""Checks for pipelines that the workers of the tf.data service cannot run."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.indexed_plan import is_python_map
from infeed_server.sources import ArraysSource, DatasetSource, ImagesSource, Source, TFRecordSource
from infeed_server.sources.base import SourceDefinition
from infeed_server.sources.dataset.determinism import iter_stages, python_nodes
from infeed_server.transforms import Map
from infeed_server.transforms.base import Step, Transform

LIMIT_BYTES = 512 << 20
"""Of constants in a graph. A dataset is registered as one message of at most 2 GiB, and each
process that forwards it holds several copies."""

_ALTERNATIVE = "write it with TensorFlow operations, or use --engine local"

_STAGE = re.compile(r"Dataset_(flat_map|group_by_window|take_while|[a-z]+)_(.+)")
"""TensorFlow's name of the graph of a stage's function: the method, then the function."""


def refuse_python_source(definition: SourceDefinition) -> None:
    """Raises `ConfigError` for a source that only Python can read."""
    if not isinstance(definition, TFRecordSource | ImagesSource | ArraysSource):
        raise ConfigError(
            f"source.{definition.kind}: it is read by Python in the server, which the workers of "
            "the tf.data service cannot do; write it as TFRecords (tfrecord: ...), or use --engine "
            "local"
        )


def refuse_python_maps(transforms: Sequence[Transform]) -> None:
    """Raises `ConfigError` for the first `map` with `python: true`."""
    for number, transform in enumerate(transforms):
        if is_python_map(transform):
            stage = f"transforms[{number}].map"
            raise ConfigError(
                f"{stage}.python: the workers of the tf.data service cannot run Python; "
                f"{_ALTERNATIVE}",
                stage=stage,
            )


def refuse_python_steps(source: Source, steps: Sequence[Step]) -> None:
    """Raises `ConfigError` for the first step that calls Python for each sample."""
    maps = [
        (number, ordinal, step)
        for number, (ordinal, step) in enumerate(steps)
        if isinstance(step, Map)
    ]
    if not maps:
        return
    last, *_ = maps[-1]
    specs = sample_graph.trace(source, steps[:last])
    for number, ordinal, step in maps:
        traced = tf.function(step.apply, autograph=False)
        nodes = python_nodes(
            traced.get_concrete_function(specs[number], sample_graph.KEY_SPEC).graph
        )
        if nodes:
            stage = f"transforms[{ordinal}].{step.name}"
            raise ConfigError(
                f"{stage}: {step.function_name} calls Python for each sample ({_first(nodes)}), "
                f"which the workers of the tf.data service cannot do; {_ALTERNATIVE}",
                stage=stage,
            )


def refuse_python_stages(source: DatasetSource, dataset: tf.data.Dataset) -> None:
    """Raises `ConfigError` if a stage of a user's dataset calls Python for its elements."""
    for stage in iter_stages(dataset):
        for function in stage._functions():
            nodes = python_nodes(function.function.graph)
            if nodes:
                raise ConfigError(
                    f"source.dataset: the stage {_stage_name(function.function.graph)} of "
                    f"{source.label} calls Python for its elements ({_first(nodes)}), which the "
                    f"workers of the tf.data service cannot do; {_ALTERNATIVE}",
                    stage="source.dataset",
                )


def require_size(stage: str, size: int, limit: int, alternative: str = "") -> None:
    """Raises `ConfigError` if `size` bytes of a source's data in the graph exceed the limit."""
    if size > limit:
        raise ConfigError(
            f"{stage}: the graph that is sent to the workers of the tf.data service would hold "
            f"{_mib(size)} of it, over the limit of {_mib(limit)}; {alternative}use --engine local",
            stage=stage,
        )


def _stage_name(traced: tf.Graph) -> str:
    if any(operation.type == "GeneratorDataset" for operation in traced.get_operations()):
        return "from_generator"
    match = _STAGE.match(traced.name)
    return f"{match[1]}({match[2]})" if match else traced.name


def _first(nodes: set[str]) -> str:
    return min(nodes).rpartition("/")[2]


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
