"""Where samples come from."""

from infeed_server.sources.arrays import ArraysSource
from infeed_server.sources.base import Columns, Indices, Provenance, Sample, Source
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
    "Indices",
    "Progress",
    "Provenance",
    "Sample",
    "Source",
    "TFRecordSource",
    "open_source",
]
