"""Static checks of a YAML file: every mistake with its line, without loading TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from infeed_server.config.document import Problem
from infeed_server.config.model import Finding
from infeed_server.pipeline.load import FilePipelines, definitions
from infeed_server.sources import AnySource
from infeed_server.sources.base import SourceDefinition
from infeed_server.transforms import AnyTransform
from infeed_server.transforms.base import Transform

T = TypeVar("T")

_SOURCE: TypeAdapter[SourceDefinition] = TypeAdapter(AnySource)
_TRANSFORM: TypeAdapter[Transform] = TypeAdapter(AnyTransform)


def file_problems(pipelines: FilePipelines) -> list[Problem]:
    """Returns what is invalid in a file, and the paths and modules that do not exist, by line.

    They are looked for in the valid parts of an invalid pipeline too.
    """
    doc = pipelines.document
    problems = [*pipelines.problems]
    for name, value in definitions(doc).items():
        if isinstance(value, dict):
            for path, text in _findings(value, pipelines.folder):
                problem = doc.problem(("pipelines", name, *path), text)
                problems.append(problem)
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.line)


def _findings(value: dict[str, Any], folder: Path) -> Iterator[Finding]:
    source = _valid(_SOURCE, value.get("source"))
    if source is not None:
        for path, text in source.resolve(folder).check():
            yield ("source", *path), text
    listed = value.get("transforms")
    for number, item in enumerate(listed if isinstance(listed, list) else []):
        transform = _valid(_TRANSFORM, item)
        if transform is not None:
            for path, text in transform.check():
                yield ("transforms", number, transform.name, *path), text


def _valid(adapter: TypeAdapter[T], value: Any) -> T | None:
    """Returns the parsed value, None where it is invalid: the file's problems have the reasons."""
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None
