"""Fields of images beside their bytes: the base classes of what `labels` are read from.

Other packages add kinds of labels by the entry points `infeed.labels`: one has the key that selects
it, and loads the `LabelsDefinition`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from infeed.shared.spec import TargetSpec
from infeed_server.config.model import Definition
from infeed_server.sources.base import Columns, Sample
from infeed_server.sources.images.listing import ImageListing
from infeed_server.sources.places import Indices


class ImageFields(ABC):
    """The fields of each image, in the order of the listing. Thread-safe."""

    parsed: bool = True
    """Whether the columns are the fields already."""
    shown: Sequence[TargetSpec] = ()
    """What the fields show of the picture."""
    missing: frozenset[int] = frozenset()
    """Indices of the images without labels."""
    table: str = ""
    """Where those would be."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        """The columns that `read` returns, of one image."""

    @abstractmethod
    def read(self, indices: Indices) -> Columns:
        """Reads the columns of images. Raises `SourceError` and `SampleError`."""

    @abstractmethod
    def digest(self, index: int) -> bytes:
        """Returns what the identity of the samples has of an image, besides its file."""

    @property
    def classes(self) -> Mapping[str, Sequence[str]]:
        """The names of classes, by field."""
        return {}

    def parse(self, columns: Sample) -> Sample:
        """Parses the columns of one image, inside the pipeline's graph."""
        return columns

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        """Returns the fields that are known of all images."""
        return {}

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        """Returns what `Source.whole_field` does."""
        return self.known_fields().get(name)

    def close(self) -> None:  # noqa: B027 - of those that read files
        """Ends what reads."""


class LabelsDefinition(Definition):
    """The options of `labels` of images."""

    def paths(self) -> dict[str, str]:
        """Returns the options that are paths."""
        return {}

    def read(self, listing: ImageListing) -> ImageFields:
        """Reads the labels of the images. Raises `SourceError`."""
        raise NotImplementedError(type(self).__name__)
