"""Functions in Python at the head of a list of transforms: they run where samples are read."""

from __future__ import annotations

from collections.abc import Sequence

from infeed.shared.errors import ConfigError, UserCodeError
from infeed_server.pipeline.definition import Pipeline
from infeed_server.sources import PythonSource, Source
from infeed_server.sources.python.mapped import MappedSource
from infeed_server.transforms import Map
from infeed_server.transforms.base import Step, Transform


def split_python_maps(steps: Sequence[Step]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Returns the steps in Python, which are the first, and the others."""
    count = next(
        (number for number, (_, step) in enumerate(steps) if not is_python_map(step)), len(steps)
    )
    return tuple(steps[:count]), tuple(steps[count:])


def is_python_map(transform: Transform) -> bool:
    return isinstance(transform, Map) and transform.python


def check_placement(transforms: Sequence[Transform]) -> None:
    """Raises `ConfigError` for a function in Python behind a transform in a graph."""
    before: Transform | None = None
    for number, transform in enumerate(transforms):
        if not is_python_map(transform):
            before = before or transform
        elif before is not None:
            raise ConfigError(
                f"transforms[{number}].map.python: a function in Python must be before all other "
                f"transforms, and {before.name} is before it; put it first, and do that step in it "
                "or behind it, or write the function with TensorFlow operations and leave out "
                "python"
            )


def map_source(definition: Pipeline, source: Source, maps: Sequence[Step]) -> MappedSource:
    """Returns a source behind the functions. Raises `ConfigError`, `UserCodeError`, `SourceError`.

    Closing it closes `source` too.
    """
    processes = [step.processes for _, step in maps if isinstance(step, Map)]
    given = [count for count in processes if count is not None]
    in_processes = bool(max(given, default=0))
    if isinstance(definition.source, PythonSource):
        if given:
            raise ConfigError(
                f"transforms[{processes.index(given[0])}].map.processes: the function runs where "
                "the python source is read; give source.processes instead"
            )
        in_processes = bool(definition.source.processes)
    functions = tuple(
        step.function_options(ordinal, by_name=in_processes)
        for ordinal, step in maps
        if isinstance(step, Map)
    )
    try:
        label = f"the source {definition.source.kind}"
        return MappedSource(source, functions, label, max(given, default=0))
    except UserCodeError as error:
        stage = error.metadata.get("stage", functions[0].stage)
        raise UserCodeError(f"{stage}: {error.message}", **error.metadata) from error
