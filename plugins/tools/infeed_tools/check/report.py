"""The report of a scan: bad samples, classes, sizes and values of each pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from infeed.shared.errors import InfeedError
from infeed.shared.spec import Array
from infeed_tools.check.ranges import SOURCE_STAGE, ClassCounts, FieldRange

if TYPE_CHECKING:  # they load TensorFlow
    import tensorflow as tf

    from infeed_server.transforms.base import Step
    from infeed_tools.check.measures import Measures


@dataclass
class PipelineReport:
    """The findings of a scan in one pipeline."""

    name: str
    samples: int | None = None
    """Samples of the source; None if unknown."""
    scanned: int = 0
    bad_samples: int = 0
    without_label: int = 0
    """Bad samples without a label."""
    bad_examples: list[InfeedError] = field(default_factory=list)
    """The errors of the first bad samples."""
    decoder: str = ""
    """The decoder of the pictures, and the reason for it."""
    ranges: list[FieldRange] = field(default_factory=list)
    classes: list[ClassCounts] = field(default_factory=list)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Numbers of boxes before and after the transforms, by field."""
    mask_values: dict[str, set[int]] = field(default_factory=dict)
    """The values of masks' pixels, by field."""
    fills: dict[str, int] = field(default_factory=dict)
    """The declared values for pixels around masks, by field."""
    stages: dict[int, str] = field(default_factory=lambda: {SOURCE_STAGE: "source"})
    """The name of each stage."""

    def measure(
        self, measures: Measures, steps: Sequence[Step], names: Mapping[str, Sequence[str]] = {}
    ) -> None:
        """Prepares for samples; `names` holds the class names by field."""
        self.stages |= {number: f"{number}: {transform.name}" for number, transform in steps}
        self.ranges = measures.ranges()
        self.classes = [
            ClassCounts(name, names=names.get(name, ())) for name in measures.class_fields
        ]

    def add(
        self, values: Array, classes: Mapping[str, tf.Tensor], masks: Mapping[str, tf.Tensor]
    ) -> None:
        """Adds the measures of samples."""
        for name, seen in masks.items():
            found = np.flatnonzero(np.asarray(seen).any(0)).tolist()
            self.mask_values[name] = self.mask_values.get(name, set()) | {*found}
        for number, found in enumerate(self.ranges):
            found.add(values[:, number])
        for counts in self.classes:
            counts.add(np.asarray(classes[counts.field]))

    def balances(self) -> list[ClassCounts]:
        """Returns the fields whose values are classes."""
        return [counts for counts in self.classes if counts.is_balance]

    def image_sizes(self) -> dict[str, dict[str, tuple[int, int, int]]]:
        """Returns field → side → minimum, median and maximum of decoded images."""
        return {values.field: sizes for values in self.ranges if (sizes := values.image_sizes())}

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "samples": self.samples,
            "scanned": self.scanned,
            "bad_samples": {
                "count": self.bad_samples,
                "without_label": self.without_label,
                "first": [
                    {**error.metadata, "reason": error.reason, "message": error.message}
                    for error in self.bad_examples
                ],
            },
            "decoder": self.decoder,
            "image_sizes": {
                name: {
                    side: dict(zip(("min", "median", "max"), sizes, strict=True))
                    for side, sizes in sides.items()
                }
                for name, sides in self.image_sizes().items()
            },
            "classes": {
                classes.field: {
                    classes.label(value): count for value, count in sorted(classes.counts.items())
                }
                for classes in self.balances()
            },
            "mask_values": {name: sorted(found) for name, found in self.mask_values.items()},
            "rows": {
                name: dict(zip(("before", "after"), counts, strict=True))
                for name, counts in self.rows.items()
            },
            "ranges": [
                {**found.to_json(), "stage": self.stages[found.stage]} for found in self.ranges
            ],
        }
