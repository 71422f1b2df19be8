"""Static checks of a YAML file: every mistake with its line, without loading TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from infeed.shared.errors import ConfigError, KeyPath
from infeed_python.map import Map
from infeed_server.config.document import Problem
from infeed_server.config.importer import find_module, missing_name, named_in
from infeed_server.config.model import Finding
from infeed_server.pipeline.definition import Pipeline, Remove, with_samples
from infeed_server.pipeline.load import FilePipelines, definitions
from infeed_server.pipeline.removal_list import read_list
from infeed_server.sources.base import CodeDefinition, SourceDefinition
from infeed_server.sources.images.source import ImagesSource
from infeed_server.sources.registry import AnySource
from infeed_server.transforms import AnyTransform, Transform

_SOURCE: TypeAdapter[SourceDefinition] = TypeAdapter(AnySource)
_TRANSFORM: TypeAdapter[Transform] = TypeAdapter(AnyTransform)


def file_problems(pipelines: FilePipelines) -> list[Problem]:
    """Returns a file's problems by line: invalid values, and missing paths and names, which it
    also finds in the valid parts of an invalid pipeline."""
    doc = pipelines.document
    problems = [*pipelines.problems]
    for name, value in definitions(doc).items():
        if isinstance(value, dict):
            for path, text in _findings(value, pipelines.folder):
                problem = doc.problem(("pipelines", name, *path), text)
                problems.append(problem)
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.line)


def order_notes(pipelines: Mapping[str, Pipeline]) -> Iterator[str]:
    """Yields a note for each pipeline whose samples come class by class, unless it looks like an
    evaluation, which reads all of them."""
    for name, pipeline in pipelines.items():
        source, batch = pipeline.source, pipeline.batch
        by_class = isinstance(source, ImagesSource) and source.is_sorted_by_class
        if by_class and pipeline.shuffle.mode == "none" and batch and batch.remainder == "drop":
            yield (
                f"note: {name}: samples come class by class; add shuffle: {{seed: 17}} for "
                "training, or batch: {remainder: pad} for evaluation"
            )


def _findings(value: dict[str, Any], folder: Path) -> Iterator[Finding]:
    yield from _source_findings(("source",), value.get("source"), folder)
    added, removed = value.get("add"), value.get("remove")
    for number, item in enumerate(added if isinstance(added, list) else ()):
        yield from _source_findings(("add", number), item, folder)
    try:
        remove = Remove.model_validate(with_samples(removed)).resolve(folder)
        read_list(remove.samples)
    except ConfigError as error:
        yield error.at, error.problem
    except ValidationError:
        pass  # already among the file's problems
    transforms = value.get("transforms")
    for number, item in enumerate(transforms if isinstance(transforms, list) else ()):
        with suppress(ValidationError):
            transform = _TRANSFORM.validate_python(item)
            if isinstance(transform, Map):
                path = ("transforms", number, transform.name, "function")
                yield from _code_findings(path, named_in(str(transform.function), folder))


def _source_findings(place: KeyPath, value: Any, folder: Path) -> Iterator[Finding]:
    with suppress(ValidationError):  # already among the file's problems
        source = _SOURCE.validate_python(value)
        for path, text in source.resolve(folder).check():
            yield (*place, *path), text
        if isinstance(source, CodeDefinition):
            yield from _code_findings((*place, source.kind), named_in(source.label, folder))


def _code_findings(path: KeyPath, name: str) -> Iterator[Finding]:
    """Yields a finding if the module of `module:attr` does not even mention the name."""
    step = name.partition(":")[2].partition(".")[0]
    try:
        spec = find_module(name)
        if spec is not None and str(spec.origin).endswith(".py"):
            text = Path(str(spec.origin)).read_text("utf-8", "replace")
            if not {step, "__getattr__"} & {*re.findall(r"\w+", text)} and "import *" not in text:
                names = re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE)
                raise missing_name(name, step, names)
    except ConfigError as error:
        yield path, error.message
    except OSError:  # the import will report it
        return
