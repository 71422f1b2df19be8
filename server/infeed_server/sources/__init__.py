"""Where samples come from."""

from infeed_server.sources.arrays import ArraysSource
from infeed_server.sources.base import (
    Columns,
    Indices,
    InGraph,
    Provenance,
    Sample,
    Source,
    StoredSource,
)
from infeed_server.sources.choice import AnySource, open_source
from infeed_server.sources.dataset import DatasetSource
from infeed_server.sources.definition import Progress
from infeed_server.sources.images import ImagesSource
from infeed_server.sources.tfrecord import TFRecordSource

__all__ = [
    "AnySource",
    "ArraysSource",
    "Columns",
    "DatasetSource",
    "ImagesSource",
    "InGraph",
    "Indices",
    "Progress",
    "Provenance",
    "Sample",
    "Source",
    "StoredSource",
    "TFRecordSource",
    "open_source",
]
