"""The registry of sources: selection by configuration key, and opening."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.config.model import did_you_mean
from infeed_server.sources.arrayrecord.source import ArrayRecordSource
from infeed_server.sources.arrays.source import ArraysSource
from infeed_server.sources.arrow.csv_files import CsvSource
from infeed_server.sources.arrow.huggingface import HuggingFaceSource
from infeed_server.sources.arrow.parquet import ParquetSource
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, Source, SourceDefinition
from infeed_server.sources.concat import ConcatSource
from infeed_server.sources.dataset.source import DatasetSource
from infeed_server.sources.images.source import ImagesSource
from infeed_server.sources.mds.source import MdsSource
from infeed_server.sources.python.source import PythonSource
from infeed_server.sources.tfds.source import TfdsSource
from infeed_server.sources.tfrecord.source import TFRecordSource
from infeed_server.sources.tokens.source import TokensSource
from infeed_server.sources.webdataset.source import WebDatasetSource
from infeed_server.storage.git_lfs import name_pointer

_Any: TypeAlias = (
    TFRecordSource
    | ImagesSource
    | ArraysSource
    | WebDatasetSource
    | ParquetSource
    | CsvSource
    | HuggingFaceSource
    | ArrayRecordSource
    | MdsSource
    | TfdsSource
    | TokensSource
    | PythonSource
    | DatasetSource
)

SOURCE_CLASSES: dict[str, type[SourceDefinition]] = {
    source_class.kind: source_class for source_class in get_args(_Any)
}
"""Configuration key → class of the definition."""


def _validate(value: Any) -> Any:
    if isinstance(value, SourceDefinition):
        return value
    kinds = [kind for kind in SOURCE_CLASSES if isinstance(value, dict) and kind in value]
    if len(kinds) == 1:
        # Its errors keep their locations: pydantic puts them below the source's.
        return SOURCE_CLASSES[kinds[0]].model_validate(value)
    known = [*SOURCE_CLASSES]
    message = f"a source has one of: {', '.join(known)}"
    if kinds:
        message += f"; this one has {' and '.join(kinds)}"
    elif isinstance(value, dict):
        options = {name for kind in SOURCE_CLASSES.values() for name in kind.model_fields}
        hints = {key: did_you_mean(str(key), known) for key in value if key not in options}
        unknown = [f"unknown key {key!r}{hint}; " for key, hint in hints.items() if hint]
        message = f"{''.join(unknown[:1])}{message}"
    raise PydanticCustomError("source_kind", "{message}", {"message": message})


AnySource: TypeAlias = Annotated[_Any, BeforeValidator(_validate)]
"""A definition of any source, as a field of a model."""


def _is_indexed(source: _Any) -> _Any:
    if isinstance(source, DatasetSource):
        raise ValueError("should be a source with samples by index; a dataset has none")
    return source


AddedSource: TypeAlias = Annotated[AnySource, AfterValidator(_is_indexed)]
"""A definition of a source with random access."""


def open_source(
    definition: AnySource, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
) -> Source:
    """Opens an indexed source. Raises `ConfigError` for a sequential one, and `SourceError`."""
    if isinstance(definition, IndexedDefinition):
        try:
            return definition.open(progress, keep_damaged=keep_damaged)
        except InfeedError as error:
            name_pointer(error)
            raise
    raise ConfigError(
        f"the dataset {definition.label} is sequential: its elements cannot be read by index"
    )


def open_sources(
    definitions: Sequence[AnySource],
    progress: ProgressCallback | None = None,
    *,
    keep_damaged: bool = False,
) -> Source:
    """Opens sources as one: the first of a pipeline, and those that it adds. Raises `ConfigError`
    where their columns differ, and `SourceError`."""
    opened: list[Source] = []
    with ExitStack() as undo:
        for number, definition in enumerate(definitions):
            try:
                opened.append(open_source(definition, progress, keep_damaged=keep_damaged))
            except InfeedError as error:
                if number:
                    inner = error.message.startswith("source.")
                    rest = error.message.removeprefix("source") if inner else f": {error.message}"
                    error.message = f"add[{number - 1}]{rest}"
                    error.args = (error.message,)
                raise
            undo.callback(opened[-1].close)
        names = [_describe(definition) for definition in definitions]
        source = opened[0] if len(opened) == 1 else ConcatSource(opened, names)
        undo.pop_all()
    return source


def _describe(definition: AnySource) -> str:
    paths = getattr(definition, definition.kind)
    return f"{definition.kind}: {paths}" if isinstance(paths, str | list) else definition.kind
