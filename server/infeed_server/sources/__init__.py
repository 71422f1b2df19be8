"""Data sources: random access to files, arrays and Python objects, or a `tf.data.Dataset`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infeed_server.sources.arrays.source import ArraysSource
    from infeed_server.sources.base import ProgressCallback, Source, StoredSource
    from infeed_server.sources.dataset.source import DatasetSource
    from infeed_server.sources.images.source import ImagesSource
    from infeed_server.sources.python.source import PythonSource
    from infeed_server.sources.registry import AnySource, open_source
    from infeed_server.sources.tfrecord.source import TFRecordSource

__all__ = [
    "AnySource",
    "ArraysSource",
    "DatasetSource",
    "ImagesSource",
    "ProgressCallback",
    "PythonSource",
    "Source",
    "StoredSource",
    "TFRecordSource",
    "open_source",
]

_MODULES = {
    "AnySource": "infeed_server.sources.registry",
    "ArraysSource": "infeed_server.sources.arrays.source",
    "DatasetSource": "infeed_server.sources.dataset.source",
    "ImagesSource": "infeed_server.sources.images.source",
    "ProgressCallback": "infeed_server.sources.base",
    "PythonSource": "infeed_server.sources.python.source",
    "Source": "infeed_server.sources.base",
    "StoredSource": "infeed_server.sources.base",
    "TFRecordSource": "infeed_server.sources.tfrecord.source",
    "open_source": "infeed_server.sources.registry",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: worker processes import modules below, without TensorFlow.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_MODULES[name]), name)
