"""Checks for pipelines that the workers of the tf.data service cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from infeed.shared.errors import ConfigError, KeyPath
from infeed_formats.arrays.source import ArraysSource
from infeed_formats.tfrecord.source import TFRecordSource
from infeed_python.map import Map
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.definition import Pipeline
from infeed_server.sources.base import Source
from infeed_server.sources.images.source import ImagesSource
from infeed_server.transforms.base import Step
from infeed_server.transforms.graph_nodes import find_nodes
from infeed_service.sequential.determinism import iter_stages
from infeed_service.sequential.source import DatasetSource

LIMIT_BYTES = 512 << 20
"""Limit of the constants in a graph. A dataset is registered as one message of at most 2 GiB, and
each process that forwards it holds several copies."""

_PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def refuse_python(definition: Pipeline) -> None:
    """Raises `ConfigError` for a source or a `map` that only Python can run."""
    if not isinstance(definition.source, TFRecordSource | ImagesSource | ArraysSource):
        raise ConfigError(
            "Python in the server reads it, which the workers of the tf.data service cannot do; "
            "write it as TFRecords (tfrecord: ...), or use --engine local",
            at=("source", definition.source.kind),
        )
    for number, transform in enumerate(definition.transforms):
        if transform.in_source:
            raise _calls_python(("transforms", number, "map"), "python: true")


def refuse_local_orders(definition: Pipeline) -> None:
    """Raises `ConfigError` for samples and orders that graphs do not support."""
    given: list[KeyPath] = [
        (name,) for name in ("add", "remove", "skip") if getattr(definition, name)
    ]
    if definition.shuffle.order == "stable":
        given.append(("shuffle", "order"))
    for place in given:
        raise ConfigError(
            "the tf.data service does not support it; leave it out, or use --engine local", at=place
        )


def refuse_python_steps(source: Source, steps: Sequence[Step]) -> None:
    """Raises `ConfigError` for the first step that calls Python for each sample."""
    last = max((n for n, (_, step) in enumerate(steps) if isinstance(step, Map)), default=None)
    if last is None:
        return
    specs = sample_graph.trace(source, steps[:last]).stages
    for (ordinal, step), fields in zip(steps, specs, strict=False):
        if isinstance(step, Map):
            traced = tf.function(step.apply, autograph=False)
            graph = traced.get_concrete_function(fields, sample_graph.KEY_SPEC).graph
            _refuse_nodes(("transforms", ordinal, step.name), step.function_name, [graph])


def refuse_python_stages(source: DatasetSource, dataset: tf.data.Dataset) -> None:
    """Raises `ConfigError` if a stage of a user's dataset calls Python for its elements."""
    functions = (function for stage in iter_stages(dataset) for function in stage._functions())
    graphs = (function.function.graph for function in functions)
    _refuse_nodes(("source", "dataset"), source.label, graphs)


def require_size(place: KeyPath, size: int, limit: int, alternative: str = "") -> None:
    """Raises `ConfigError` if `size` bytes of a source's data in the graph exceed the limit."""
    if size > limit:
        raise ConfigError(
            "the graph for the workers of the tf.data service would hold "
            f"{size >> 20} MiB of it, over the limit of {limit >> 20} MiB; {alternative}use "
            "--engine local",
            at=place,
        )


def _refuse_nodes(place: KeyPath, name: str, graphs: Iterable[tf.Graph]) -> None:
    for graph in graphs:
        if nodes := find_nodes(graph, _PYTHON_OPS):
            raise _calls_python(place, f"{name} ({min(nodes).rpartition('/')[2]} in {graph.name})")


def _calls_python(place: KeyPath, subject: str) -> ConfigError:
    return ConfigError(
        f"{subject} calls Python for each sample, but the workers of the tf.data service cannot; "
        "write it with TensorFlow operations, or use --engine local",
        at=place,
    )
