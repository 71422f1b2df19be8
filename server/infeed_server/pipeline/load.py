"""From what a person names, a YAML file or `module:attr`, to pipelines by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from infeed.errors import ConfigError
from infeed_server.config import document, importer
from infeed_server.config.model import did_you_mean, dotted, explain
from infeed_server.pipeline.definition import Pipeline

Pipelines = Mapping[str, Pipeline]


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
    return pipelines


def _valid(doc: document.Document, name: str, value: Any, problems: list[str]) -> Pipeline | None:
    """One definition; what is wrong with it is added to the problems, each with its line."""
    try:
        return Pipeline.model_validate(value)
    except ValidationError as error:
        problems += [
            f"{doc.where(('pipelines', name, *path))}: {text}"
            for path, text in explain(error, Pipeline)
        ]
        return None


def parse(value: Mapping[str, Any]) -> Pipeline:
    """A pipeline from the values that YAML would hold. Raises `ConfigError`."""
    try:
        return Pipeline.model_validate(value)
    except ValidationError as error:
        lines = [f"{dotted(path)}: {text}" for path, text in explain(error, Pipeline)]
        raise ConfigError("\n".join(lines)) from None


def from_object(name: str) -> Pipelines:
    """The pipelines of the Python object that `module:attr` names."""
    target = importer.load(name)
    if isinstance(target, Callable) and not isinstance(target, Pipeline):  # type: ignore[arg-type]
        target = target()
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
