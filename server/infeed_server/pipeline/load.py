"""Loading of pipelines from a YAML file or a Python object `module:attr`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from infeed.shared.errors import ConfigError, InfeedError, KeyPath, SourceError, format_path
from infeed_server.config import document, importer
from infeed_server.config.document import Problem
from infeed_server.config.model import did_you_mean, explain
from infeed_server.config.user_errors import user_errors
from infeed_server.imports import load_tensorflow
from infeed_server.pipeline.class_folders import class_folder_problems
from infeed_server.pipeline.definition import Pipeline

Pipelines = Mapping[str, Pipeline]


class FilePipelines(dict[str, Pipeline]):
    """The valid pipelines of a YAML file, with the lines of all definitions and the problems."""

    def __init__(
        self, pipelines: Pipelines, doc: document.Document, problems: Sequence[Problem]
    ) -> None:
        super().__init__(pipelines)
        self.document = doc
        self.problems = sorted(problems, key=lambda problem: problem.line)
        self.broken: dict[str, str] = {}
        """The pipelines left out, and their problems."""

    def without_broken(self) -> FilePipelines:
        """Returns the pipelines without a problem, and the problems that concern the whole file. If
        each pipeline has one, returns all."""
        broken = {name: self._problems_of(name) for name in definitions(self.document)}
        good = {name: pipeline for name, pipeline in self.items() if not broken[name]}
        if not good:
            return self
        skipped = [problem for problems in broken.values() for problem in problems]
        others = [problem for problem in self.problems if problem not in skipped]
        result = FilePipelines(good, self.document, others)
        result.broken = {name: "; ".join(map(str, bad)) for name, bad in broken.items() if bad}
        return result

    def _problems_of(self, name: str) -> list[Problem]:
        path = format_path(("pipelines", name))
        inner = (f"{path}.", f"{path}[")
        return [item for item in self.problems if item.path == path or item.path.startswith(inner)]

    @property
    def folder(self) -> Path:
        """The base of relative paths."""
        return Path(self.document.file).resolve().parent


def load(name: str, *, skip_broken: bool = False) -> Pipelines:
    """Loads the pipelines of a YAML file, or of a Python object `module:attr`. The object is a
    `Pipeline` (served under the attribute's name), a mapping of names to pipelines, or a function
    without arguments that returns either. Raises `ConfigError` that lists every problem with its
    line; `skip_broken` leaves out the pipelines of a file that have one."""
    if Path(name).is_dir():
        raise ConfigError(
            f"{name!r} is a folder; give a YAML file, such as infeed init writes, or module:attr",
            name=name,
        )
    if name.endswith((".yaml", ".yml")) or Path(name).is_file():
        return from_yaml(name, skip_broken=skip_broken)
    if ":" in name:
        return from_object(name)
    raise ConfigError(
        f"{name!r} is neither an existing YAML file nor of the form module:attr", name=name
    )


def from_yaml(file: str, *, skip_broken: bool = False) -> Pipelines:
    """Loads the pipelines of a YAML file; its directory is the base of relative paths and a search
    path for modules."""
    pipelines = parse_yaml(file)
    if skip_broken:
        pipelines = pipelines.without_broken()
    if pipelines.problems:
        raise ConfigError("\n".join(map(str, pipelines.problems)), file=file)
    return pipelines


def parse_yaml(file: str) -> FilePipelines:
    """Returns the valid pipelines of a YAML file, and the problems of the others or of the file."""
    doc = document.parse(file)
    base = Path(file).resolve().parent
    problems = [*doc.problems, *_top_level_problems(doc)]
    pipelines: dict[str, Pipeline] = {}
    for name, value in definitions(doc).items():
        try:
            pipelines[name] = Pipeline.model_validate(value).resolve(base)
        except ValidationError as error:
            problems += [
                doc.problem(("pipelines", name, *path), text)
                for path, text in explain(error, value)
            ]
    problems += [doc.problem(path, text) for path, text in class_folder_problems(pipelines)]
    for name, pipeline in [*pipelines.items()]:
        try:
            pipelines[name] = pipeline.linked(pipelines)
        except ConfigError as error:
            problems.append(doc.problem(doc.written(place_of(error, name)), error.problem))
    return FilePipelines(pipelines, doc, problems)


@contextmanager
def located(pipelines: Pipelines, name: str) -> Iterator[None]:
    """Adds the pipeline to the place of errors raised in the block, and file and line if known."""
    try:
        yield
    except InfeedError as error:
        error.at = place_of(error, name)
        if isinstance(pipelines, FilePipelines):
            error.at = pipelines.document.written(error.at)
            error.line = f"{pipelines.document.file}:{pipelines.document.line(error.at)}"
        raise


def place_of(error: InfeedError, name: str) -> KeyPath:
    """Returns the place of a pipeline's error in a file of pipelines."""
    inner = error.at or (("source",) if isinstance(error, SourceError) else ())
    return ("pipelines", name, *inner)


def parse(value: Mapping[str, Any]) -> Pipeline:
    """Returns a pipeline from the values that YAML would hold. Raises `ConfigError`."""
    try:
        return Pipeline.model_validate(value)
    except ValidationError as error:
        lines = [f"{format_path(path)}: {text}" for path, text in explain(error, value)]
        raise ConfigError("\n".join(lines)) from None


def from_object(name: str) -> Pipelines:
    """Loads the pipelines of the Python object that `module:attr` names."""
    load_tensorflow()  # the user's module may use any part of it
    with user_errors(name, InfeedError, KeyboardInterrupt):
        target = importer.load(name)
        if callable(target):
            target = target()
    if isinstance(target, Pipeline):
        return {name.rpartition(":")[2].rpartition(".")[2]: target}
    if (
        isinstance(target, Mapping)
        and target
        and all(isinstance(value, Pipeline) for value in target.values())
    ):
        return {key: pipeline.linked(target) for key, pipeline in target.items()}
    raise ConfigError(
        f"{name} has the type {type(target).__name__}; it must be a Pipeline, a mapping of names "
        "to Pipelines, or a function that returns either",
        name=name,
    )


def definitions(doc: document.Document) -> dict[str, Any]:
    """Returns the values of the pipelines by name, valid or not."""
    value = doc.value.get("pipelines") if isinstance(doc.value, dict) else None
    return value if isinstance(value, dict) else {}


def _top_level_problems(doc: document.Document) -> Iterator[Problem]:
    if doc.value is None and doc.problems:
        return  # these are the reason
    if not isinstance(doc.value, dict):
        yield doc.problem((), "expected a mapping with the key 'pipelines'")
        return
    for key in doc.value:
        if key != "pipelines":
            hint = did_you_mean(key, ["pipelines"])
            yield doc.problem((key,), f"unknown key {key!r}{hint}; allowed: pipelines")
    if not definitions(doc):
        yield doc.problem(("pipelines",), "expected at least one pipeline, by name")
