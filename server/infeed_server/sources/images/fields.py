"""Fields of images besides their bytes: the base classes for kinds of `labels`.

Other packages add kinds of labels through the entry point group `infeed.labels`: an entry point is
named after the key that selects it, and loads the `LabelsDefinition`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from infeed.shared.spec import TargetSpec
from infeed_server.config.model import Definition
from infeed_server.sources.base import Columns, Exif, Sample
from infeed_server.sources.images.listing import ImageListing
from infeed_server.sources.places import Indices


class ImageFields(ABC):
    """The fields of each image, in the order of the listing. Thread-safe."""

    parsed: bool = True
    """Whether the columns already are the fields."""
    shown: Sequence[TargetSpec] = ()
    """What each field shows of the picture."""
    exif: Exif = ""
    missing: frozenset[int] = frozenset()
    """Indices of the images without labels."""
    table: str = ""
    """Where the missing labels would be."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        """The columns that `read` returns, of one image."""

    @abstractmethod
    def read(self, indices: Indices) -> Columns:
        """Reads the columns of images. Raises `SourceError` and `SampleError`."""

    @abstractmethod
    def digest(self, index: int) -> bytes:
        """Returns an image's part of the samples' identity, besides its file."""

    @property
    def classes(self) -> Mapping[str, Sequence[str]]:
        """The names of classes, by field."""
        return {}

    def parse(self, columns: Sample) -> Sample:
        """Parses the columns of one image, inside the pipeline's graph."""
        return columns

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        """Returns the fields known for all images."""
        return {}

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        """Returns what `Source.whole_field` does."""
        return self.known_fields().get(name)

    def close(self) -> None:  # noqa: B027 - of those that read files
        """Stops the readers."""


class LabelsDefinition(Definition):
    """The options of `labels` of images."""

    def paths(self) -> dict[str, str]:
        """Returns the options that are paths."""
        return {}

    def read(self, listing: ImageListing) -> ImageFields:
        """Reads the labels of the images. Raises `SourceError`."""
        raise NotImplementedError(type(self).__name__)
