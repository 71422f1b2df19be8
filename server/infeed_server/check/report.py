"""The report of a scan: bad samples, classes, ranges of values, and rules about them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed.shared.errors import InfeedError
from infeed.shared.spec import Array
from infeed_server.config.model import Finding
from infeed_server.transforms import (
    ConvertImageDtype,
    OneHot,
    RandomBrightness,
    RandomHue,
    RandomSaturation,
    Transform,
)

SOURCE_STAGE = -1
"""The stage before all transforms; that behind a transform is its number in the definition."""

MAX_CLASS_BYTES = 64
"""Bytes of a class name. A longer byte string is text or data, and its values are not counted."""

_MAX_CLASSES = 10_000
"""Different values of a field of classes. A field with more has numbers or names of samples."""


_OF_UNIT_RANGE = (RandomBrightness, RandomHue, RandomSaturation, ConvertImageDtype)
"""Transforms for which floats are from 0 to 1, as in `tf.image`."""

_MAX_UNIT = 2.0
"""Largest float in such an image; a crop that was resized with overshoot may be above 1."""


@dataclass
class FieldRange:
    """The values of a field at a stage; of byte strings, their lengths."""

    stage: int
    field: str
    data_type: str
    shape: str
    minimum: float = math.inf
    maximum: float = -math.inf
    not_finite: int = 0
    """Values that are NaN or infinite; the other numbers are without them."""
    _sums: Array = dataclasses.field(default_factory=lambda: np.zeros(3))
    """The number of finite values, their sum, and the sum of their squares."""

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
        """Adds measures of samples, float64[n, 6]."""
        self.minimum = min(self.minimum, float(measures[:, 0].min()))
        self.maximum = max(self.maximum, float(measures[:, 1].max()))
        self._sums = self._sums + measures[:, 2:5].sum(axis=0)
        self.not_finite += int(measures[:, 5].sum())

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


@dataclass
class ClassCounts:
    """The number of samples with each value of a field."""

    names: tuple[str, ...] = ()
    """The name of each class, where the source has them."""
    counts: Counter[int | str] = field(default_factory=Counter)
    is_class: bool = True
    """Whether the values can be classes."""

    def add(self, values: Array) -> None:
        """Adds the values of samples: integers, or byte strings."""
        texts = values.dtype == object
        if texts and any(len(value) > MAX_CLASS_BYTES for value in values):
            self.is_class = False
        if self.is_class:
            self.counts.update(
                [value.decode(errors="replace") for value in values] if texts else values.tolist()
            )
            self.is_class = len(self.counts) <= _MAX_CLASSES

    @property
    def is_balance(self) -> bool:
        """Whether classes repeat, as labels do, and names of files or numbers of rows do not."""
        return self.is_class and 0 < 2 * len(self.counts) <= max(self.counts.total(), 2)

    def label(self, value: Any) -> str:
        """Returns the class as a person reads it: `3 (cat)`."""
        known = isinstance(value, int) and 0 <= value < len(self.names)
        text = f"{value} ({self.names[value]})" if known else str(value)
        # Bytes of a file must not control the terminal.
        return text if text.isprintable() else repr(text)


@dataclass
class PipelineReport:
    """What a scan has found in one pipeline."""

    name: str
    samples: int | None = None
    """Samples of the source; None: a dataset, which is not scanned."""
    scanned: int = 0
    bad_samples: int = 0
    bad_examples: list[InfeedError] = field(default_factory=list)
    """The errors of the first bad samples."""
    ranges: list[FieldRange] = field(default_factory=list)
    classes: dict[str, ClassCounts] = field(default_factory=dict)
    """The counts of each field whose values can be classes."""
    stages: dict[int, str] = field(default_factory=lambda: {SOURCE_STAGE: "source"})
    """The name of each stage."""

    def add(self, values: Array, classes: Mapping[str, Any]) -> None:
        """Adds the measures of samples."""
        for number, found in enumerate(self.ranges):
            found.add(values[:, number])
        for name, counts in self.classes.items():
            counts.add(np.asarray(classes[name]))

    def balances(self) -> dict[str, ClassCounts]:
        """Returns the fields whose values are classes."""
        return {name: counts for name, counts in self.classes.items() if counts.is_balance}

    def to_json(self) -> dict[str, Any]:
        first = [
            {**error.metadata, "reason": error.reason, "message": error.message}
            for error in self.bad_examples
        ]
        return {
            "name": self.name,
            "samples": self.samples,
            "scanned": self.scanned,
            "bad_samples": {"count": self.bad_samples, "first": first},
            "classes": {
                name: {found.label(value): count for value, count in sorted(found.counts.items())}
                for name, found in self.balances().items()
            },
            "ranges": [
                {**found.to_json(), "stage": self.stages[found.stage]} for found in self.ranges
            ],
        }


def value_findings(
    transforms: Sequence[Transform], ranges: Sequence[FieldRange]
) -> Iterator[Finding]:
    """Yields transforms whose input or output has values that they are not meant for."""
    for number, transform in enumerate(transforms):
        path = ("transforms", number, transform.name)
        for after in ranges:
            before = _before(ranges, number, after.field)
            was_finite = before is None or not before.not_finite
            if after.stage == number and after.not_finite and was_finite:
                count = after.not_finite
                yield path, f"{count} results in field {after.field!r} are NaN or infinite"
        before = _before(ranges, number, getattr(transform, "field", None))
        if before is None or before.is_empty:
            continue
        low, high = before.minimum, before.maximum
        span = f"{low:g} to {high:g}"
        if isinstance(transform, OneHot) and (low < 0 or high >= transform.depth):
            text = f"depth: {transform.depth} does not fit the labels {span}: others become zeros"
            yield path, f"{text}; give depth: {high + 1:g}"
        is_float = "float" in before.data_type
        if isinstance(transform, _OF_UNIT_RANGE) and is_float and high > _MAX_UNIT:
            text = f"floats are from 0 to 1 here, but field {before.field!r} has {span}"
            yield path, f"{text}; put normalize with scale: 255 before it"


def _before(ranges: Sequence[FieldRange], number: int, field: str | None) -> FieldRange | None:
    """Returns the range of a field as the transform of this number gets it."""
    earlier = [other for other in ranges if other.field == field and other.stage < number]
    return max(earlier, key=lambda other: other.stage) if earlier else None
