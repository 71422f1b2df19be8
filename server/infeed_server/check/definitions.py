"""Static checks of a YAML file: every mistake with its line, without loading TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from infeed_server.config.document import Problem
from infeed_server.config.model import Finding
from infeed_server.pipeline.load import FilePipelines, definitions
from infeed_server.sources import AnySource
from infeed_server.sources.base import SourceDefinition

_SOURCE: TypeAdapter[SourceDefinition] = TypeAdapter(AnySource)


def file_problems(pipelines: FilePipelines) -> list[Problem]:
    """Returns what is invalid in a file, and the paths that do not exist, by line.

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
    try:
        source = _SOURCE.validate_python(value.get("source"))
    except ValidationError:  # the file's problems have the reasons
        return
    for path, text in source.resolve(folder).check():
        yield ("source", *path), text
