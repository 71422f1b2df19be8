"""Rows of images: fields with any number of rows for each image, such as boxes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from typing_extensions import override

from infeed.shared.errors import SourceError
from infeed.shared.spec import TargetSpec
from infeed_server.sources.base import Columns, Exif, Sample
from infeed_server.sources.images.fields import ImageFields
from infeed_server.sources.places import Indices
from infeed_server.storage.files import abbreviate


class RowFields(ImageFields):
    """The rows of each image, kept as bytes until `parse` since their number varies."""

    parsed = False

    def __init__(
        self,
        images: npt.NDArray[np.int64],
        fields: Mapping[str, npt.NDArray[Any]],
        count: int,
        *,
        exif: Exif,
        normalized: bool = False,
        class_names: Sequence[str] = (),
        missing: Collection[int] = (),
        table: str = "",
    ) -> None:
        """`images` has the image number of each row, and `count` is the number of images. `boxes`
        are corners, in pixels or `normalized`."""
        order = np.argsort(images, kind="stable")
        self._fields = {name: rows[order] for name, rows in fields.items()}
        self._begins = np.searchsorted(images[order], np.arange(count + 1))
        self._class_names = class_names
        formats = {"boxes": "xyxy", "keypoints": ""}
        self.shown = [
            TargetSpec(name, "image", name, format=form, normalized=normalized)
            for name, form in formats.items()
            if name in fields
        ]
        self.exif, self.missing, self.table = exif, frozenset(missing), table

    @property
    @override
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        return {name: tf.TensorSpec((), tf.string) for name in self._fields}

    @property
    @override
    def classes(self) -> Mapping[str, Sequence[str]]:
        return {"label": self._class_names} if self._class_names else {}

    @override
    def read(self, indices: Indices) -> Columns:
        columns = {}
        for name, rows in self._fields.items():
            columns[name] = np.empty(len(indices), object)
            columns[name][:] = [rows[self._rows(index)].tobytes() for index in indices]
        return columns

    @override
    def parse(self, columns: Sample) -> Sample:
        return {**columns, **{name: self._parse(columns[name], name) for name in self._fields}}

    def _parse(self, contents: tf.Tensor, name: str) -> tf.Tensor:
        rows = self._fields[name]
        values = tf.io.decode_raw(contents, tf.as_dtype(rows.dtype))
        return tf.reshape(values, [-1, *rows.shape[1:]])

    @override
    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        if name not in self._fields:
            return None
        values = np.empty(len(self._begins) - 1, object)
        values[:] = np.split(self._fields[name], self._begins[1:-1])
        return values

    @override
    def digest(self, index: int) -> bytes:
        parts = (rows[self._rows(index)].tobytes() for rows in self._fields.values())
        return b"".join([self._names, *parts])

    @cached_property
    def _names(self) -> bytes:
        text = repr([(name, rows.shape[1:]) for name, rows in self._fields.items()])
        return hashlib.sha256(f"{text}{self._class_names}".encode()).digest()

    @property
    def most(self) -> int:
        """The largest number of rows in an image."""
        return int(np.diff(self._begins).max(initial=0))

    def _rows(self, index: int) -> slice:
        return slice(self._begins[index], self._begins[index + 1])


def refuse_repeated(path: str, what: str, values: Collection[Any]) -> None:
    """Raises `SourceError` if values that must be unique in a file repeat."""
    if repeated := [repr(value) for value, count in Counter(values).items() if count > 1]:
        raise SourceError(f"{path} has {what}: {abbreviate(repeated)}; correct them", file=path)
