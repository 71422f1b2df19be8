"""Value ranges: the values of a field at a stage, over any number of samples."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.shared.spec import Array

SOURCE_STAGE = -1
"""The stage before all transforms; the stage after a transform is its index in the definition."""

MAX_CLASS_BYTES = 64
"""Bytes of a class name. A field with longer byte strings holds text or data: not counted."""

MAX_CLASSES = 10_000
"""Different values of a field of classes; one with more holds the samples' numbers or names."""


@dataclass
class FieldRange:
    """The values of a field at a stage, or the lengths of its byte strings."""

    stage: int
    field: str
    data_type: str
    shape: str
    is_image: bool = False
    """Whether it holds images of varying size, whose sizes are kept."""
    minimum: float = math.inf
    maximum: float = -math.inf
    not_finite: int = 0
    """Values that are NaN or infinite, which the other figures leave out."""
    _sums: Array = dataclasses.field(default_factory=lambda: np.zeros(3))
    """The number of finite values, their sum, and the sum of their squares."""
    _sizes: list[Array] = dataclasses.field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of finite values."""
        return int(self._sums[0])

    @property
    def total(self) -> float:
        """The sum of the finite values."""
        return float(self._sums[1])

    @property
    def mean(self) -> float:
        return float(self._sums[1] / max(self._sums[0], 1))

    @property
    def std(self) -> float:
        """The standard deviation over all values of all samples."""
        return math.sqrt(max(0.0, self._sums[2] / max(self._sums[0], 1) - self.mean**2))

    @property
    def is_empty(self) -> bool:
        return not self._sums[0]

    def add(self, measures: Array) -> None:
        """Adds measures of samples, float64[n, 8]."""
        self.minimum = min(self.minimum, float(measures[:, 0].min()))
        self.maximum = max(self.maximum, float(measures[:, 1].max()))
        self._sums = self._sums + measures[:, 2:5].sum(axis=0)
        self.not_finite += int(measures[:, 5].sum())
        if self.is_image:
            self._sizes.append(measures[:, 6:8].astype(np.int32))

    def to_json(self) -> dict[str, Any]:
        return {
            "field": self.field,
            "data_type": self.data_type,
            "shape": self.shape,
            "min": None if self.is_empty else self.minimum,
            "max": None if self.is_empty else self.maximum,
            "mean": self.mean,
            "std": self.std,
            "not_finite": self.not_finite,
        }

    def image_sizes(self) -> dict[str, tuple[int, int, int]]:
        """Returns minimum, median and maximum of `height` and `width`; empty without images."""
        if not self._sizes:
            return {}
        sizes = np.concatenate(self._sizes)
        return {
            side: (int(sizes_of.min()), int(np.median(sizes_of)), int(sizes_of.max()))
            for side, sizes_of in zip(("height", "width"), sizes.T, strict=True)
        }


@dataclass
class ClassCounts:
    """The number of samples with each value of a field."""

    field: str
    counts: Counter[int | str] = dataclasses.field(default_factory=Counter)
    names: Sequence[str] = ()
    """The name of each class, if the source has names."""
    is_class: bool = True
    """Whether the values may be classes."""

    def add(self, values: Array) -> None:
        """Adds the values of samples: integers, or byte strings."""
        if not self.is_class:
            return
        texts = values.dtype == object
        if texts and any(len(value) > MAX_CLASS_BYTES for value in values):
            self.is_class = False
            return
        self.counts.update(
            [value.decode(errors="replace") for value in values] if texts else values.tolist()
        )
        self.is_class = len(self.counts) <= MAX_CLASSES

    @property
    def is_balance(self) -> bool:
        """Whether values repeat as labels do, unlike names of files or numbers of rows."""
        return self.is_class and 0 < 2 * len(self.counts) <= max(self.counts.total(), 2)

    def label(self, value: Any) -> str:
        """Returns the class with its name: `3 (cat)`."""
        known = isinstance(value, int) and 0 <= value < len(self.names)
        text = f"{value} ({self.names[value]})" if known else str(value)
        # Bytes from a file must not control the terminal.
        return text if text.isprintable() else repr(text)
