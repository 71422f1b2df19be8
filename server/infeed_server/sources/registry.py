"""The registry of sources: selection by configuration key, and opening."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, get_args

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from infeed.shared.errors import ConfigError
from infeed_server.config.model import did_you_mean
from infeed_server.sources.arrayrecord.source import ArrayRecordSource
from infeed_server.sources.arrays.source import ArraysSource
from infeed_server.sources.arrow.huggingface import HuggingFaceSource
from infeed_server.sources.arrow.parquet import ParquetSource
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, Source, SourceDefinition
from infeed_server.sources.dataset.source import DatasetSource
from infeed_server.sources.images.source import ImagesSource
from infeed_server.sources.mds.source import MdsSource
from infeed_server.sources.python.source import PythonSource
from infeed_server.sources.tfds.source import TfdsSource
from infeed_server.sources.tfrecord.source import TFRecordSource
from infeed_server.sources.tokens.source import TokensSource
from infeed_server.sources.webdataset.source import WebDatasetSource

_Any: TypeAlias = (
    TFRecordSource
    | ImagesSource
    | ArraysSource
    | WebDatasetSource
    | ParquetSource
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


def open_source(
    definition: AnySource, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
) -> Source:
    """Opens an indexed source. Raises `ConfigError` for a sequential one, and `SourceError`."""
    if isinstance(definition, IndexedDefinition):
        return definition.open(progress, keep_damaged=keep_damaged)
    raise ConfigError(
        f"the dataset {definition.label} is sequential: its elements cannot be read by index"
    )
