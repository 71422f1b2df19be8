"""From what a person names, a YAML file or `module:attr`, to pipelines by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from infeed.errors import ConfigError, InfeedError, SourceError
from infeed_server.config import document, importer
from infeed_server.config.model import Path as Place
from infeed_server.config.model import did_you_mean, dotted, explain
from infeed_server.pipeline.definition import Pipeline
from infeed_server.sources.user_code import raised

Pipelines = Mapping[str, Pipeline]


class FilePipelines(dict[str, Pipeline]):
    """The pipelines of a YAML file, which know the lines they came from."""

    def __init__(self, pipelines: Pipelines, origin: document.Document) -> None:
        super().__init__(pipelines)
        self.origin = origin


def load(name: str) -> Pipelines:
    """The pipelines of a YAML file, or of a Python object `module:attr`.

    The object is a `Pipeline` (served under the attribute's name), a mapping of names to
    pipelines, or a function without arguments that returns either. Raises `ConfigError` that
    lists every problem with its line.
    """
    if name.endswith((".yaml", ".yml")) or Path(name).is_file():
        return from_yaml(name)
    if ":" in name:
        return from_object(name)
    raise ConfigError(
        f"{name!r} is neither a YAML file that exists nor of the form module:attr", name=name
    )


def from_yaml(file: str) -> Pipelines:
    """The pipelines of a YAML file; relative paths and modules in it are found beside it."""
    doc = document.read(file)
    base = Path(file).resolve().parent
    # The file's own directory goes before the working directory, which `importer` adds.
    importer.search(Path.cwd())
    importer.search(base)
    definitions = _definitions(doc)
    problems: list[str] = []
    pipelines = {
        name: pipeline.resolve(base)
        for name, value in definitions.items()
        if (pipeline := _valid(doc, name, value, problems))
    }
    if problems:
        raise ConfigError("\n".join(problems), file=file)
    return FilePipelines(pipelines, doc)


def _valid(doc: document.Document, name: str, value: Any, problems: list[str]) -> Pipeline | None:
    """One definition; what is wrong with it is added to the problems, each with its line."""
    try:
        return Pipeline.model_validate(value)
    except ValidationError as error:
        problems += [
            f"{doc.where(('pipelines', name, *path))}: {text}"
            for path, text in explain(error, Pipeline, value)
        ]
        return None


@contextmanager
def located(pipelines: Pipelines, name: str) -> Iterator[None]:
    """Puts the place of a pipeline, with file and line where they are known, before the message
    of an error that is raised inside.

    A message may begin with a place inside of the pipeline: `batch.size: ...`.
    """
    try:
        yield
    except InfeedError as error:
        place, _, rest = error.message.partition(": ")
        inside = _steps(place)
        if not inside or inside[0] not in Pipeline.model_fields:
            inside = ("source",) if isinstance(error, SourceError) else ()
            rest = error.message
        path: Place = ("pipelines", name, *inside)
        where = dotted(path)
        if isinstance(pipelines, FilePipelines):
            where = pipelines.origin.where(path)
        error.message = f"{where}: {rest}"
        error.args = (error.message,)
        raise


def _steps(place: str) -> Place:
    """`transforms[1].resize` as `('transforms', 1, 'resize')`."""
    steps = re.findall(r"[^.\[\]]+|\[\d+\]", place)
    return tuple(int(step[1:-1]) if step[0] == "[" else step for step in steps)


def parse(value: Mapping[str, Any]) -> Pipeline:
    """A pipeline from the values that YAML would hold. Raises `ConfigError`."""
    try:
        return Pipeline.model_validate(value)
    except ValidationError as error:
        lines = [f"{dotted(path)}: {text}" for path, text in explain(error, Pipeline, value)]
        raise ConfigError("\n".join(lines)) from None


def from_object(name: str) -> Pipelines:
    """The pipelines of the Python object that `module:attr` names."""
    try:
        target = importer.load(name)
        if callable(target):
            target = target()
    except InfeedError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise raised(name, error) from error
    if isinstance(target, Pipeline):
        return {name.rpartition(":")[2].rpartition(".")[2]: target}
    if isinstance(target, Mapping) and target:
        wrong = [key for key, value in target.items() if not isinstance(value, Pipeline)]
        if not wrong:
            return dict(target)
    raise ConfigError(
        f"{name} is {type(target).__name__}; it must be a Pipeline, a mapping of names to "
        "Pipelines, or a function that returns either",
        name=name,
    )


def _definitions(doc: document.Document) -> dict[str, Any]:
    if not isinstance(doc.value, dict):
        raise ConfigError(f"{doc.where(())}: expected a mapping with the key 'pipelines'")
    for key in doc.value:
        if key != "pipelines":
            hint = did_you_mean(key, ["pipelines"])
            raise ConfigError(f"{doc.where((key,))}: unknown key {key!r}{hint}; allowed: pipelines")
    definitions = doc.value.get("pipelines")
    if not isinstance(definitions, dict) or not definitions:
        raise ConfigError(f"{doc.where(('pipelines',))}: expected pipelines by name; there is none")
    return definitions
