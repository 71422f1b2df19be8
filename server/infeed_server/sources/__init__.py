"""Data sources: random access to files and arrays, or a sequential `tf.data.Dataset`."""

from infeed_server.sources.arrays.source import ArraysSource
from infeed_server.sources.base import ProgressCallback, Source, StoredSource
from infeed_server.sources.dataset.source import DatasetSource
from infeed_server.sources.images.source import ImagesSource
from infeed_server.sources.registry import AnySource, open_source
from infeed_server.sources.tfrecord.source import TFRecordSource

__all__ = [
    "AnySource",
    "ArraysSource",
    "DatasetSource",
    "ImagesSource",
    "ProgressCallback",
    "Source",
    "StoredSource",
    "TFRecordSource",
    "open_source",
]
