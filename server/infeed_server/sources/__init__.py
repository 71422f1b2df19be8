"""Data sources: random access to files, arrays and Python objects, or a `tf.data.Dataset`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infeed_server.sources.arrays.source import ArraysSource as ArraysSource
    from infeed_server.sources.base import ProgressCallback as ProgressCallback
    from infeed_server.sources.base import Source as Source
    from infeed_server.sources.images.source import ImagesSource as ImagesSource
    from infeed_server.sources.python.source import PythonSource as PythonSource
    from infeed_server.sources.registry import AnySource as AnySource
    from infeed_server.sources.registry import open_source as open_source
    from infeed_server.sources.tfrecord.source import TFRecordSource as TFRecordSource


def __getattr__(name: str) -> Any:
    # Imported on first use: worker processes import modules below, without TensorFlow.
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    in_base = name in ("ProgressCallback", "Source")
    return getattr(import_module(f"{__name__}.{'base' if in_base else 'registry'}"), name)
