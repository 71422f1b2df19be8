"""Which of the sources a definition is: the key that it holds says so."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from infeed.errors import ConfigError
from infeed_server.sources.arrays import ArraysSource
from infeed_server.sources.base import StoredSource
from infeed_server.sources.dataset import DatasetSource
from infeed_server.sources.definition import IndexedDefinition, Progress, SourceDefinition
from infeed_server.sources.images import ImagesSource
from infeed_server.sources.tfrecord import TFRecordSource

KINDS: dict[str, type[SourceDefinition]] = {
    each.kind: each for each in (TFRecordSource, ImagesSource, ArraysSource, DatasetSource)
}
"""The key of each kind of source."""


def _choose(value: Any) -> Any:
    if isinstance(value, SourceDefinition):
        return value
    kinds = [kind for kind in KINDS if isinstance(value, dict) and kind in value]
    if len(kinds) == 1:
        # Its errors keep their places: pydantic puts them below that of the source.
        return KINDS[kinds[0]].model_validate(value)
    message = f"a source has one of: {', '.join(KINDS)}"
    if kinds:
        message += f"; this one has {' and '.join(kinds)}"
    raise PydanticCustomError("source_kind", "{message}", {"message": message})


AnySource: TypeAlias = Annotated[
    TFRecordSource | ImagesSource | ArraysSource | DatasetSource, BeforeValidator(_choose)
]
"""A definition of any source, as a field of a model."""


def open_source(
    definition: AnySource, progress: Progress | None = None, *, keep_truncated: bool = False
) -> StoredSource:
    """Opens an indexed source; `progress` is told how far a scan of its files is.

    With `keep_truncated`, a TFRecord file that ends inside a record is served, that record being
    a sample that cannot be read. Raises `SourceError`.
    """
    if isinstance(definition, TFRecordSource):
        return definition.open(progress, keep_truncated=keep_truncated)
    if isinstance(definition, IndexedDefinition):
        return definition.open(progress)
    raise ConfigError(
        f"the dataset {definition.label} is sequential: its elements cannot be read by index"
    )
