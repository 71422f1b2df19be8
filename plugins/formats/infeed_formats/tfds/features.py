"""Features of TensorFlow Datasets as TFRecord features, and the fields made from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import tensorflow as tf

from infeed_formats.tfds.info import Node
from infeed_formats.tfrecord.features import FeatureOptions, length_field
from infeed_server.sources.base import Sample

Shape = tuple[int, ...]

_VARIES = -1

_STORED = {
    "bytes": ("string", "object"),
    "int64": (*("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),),
    "float": ("float16", "float32", "float64", "bfloat16"),
}
"""Type of a feature in a record → data types stored as that type."""


class Leaf(NamedTuple):
    """A feature that is stored in each record; the first size of its shape may vary."""

    name: str
    dtype: str
    shape: Shape
    is_class: bool = False

    @property
    def varies(self) -> bool:
        return _VARIES in self.shape

    def options(self, max_length: int | None) -> FeatureOptions:
        """Returns the record's feature; `max_length` counts along the first dimension."""
        (kind,) = (kind for kind, dtypes in _STORED.items() if self.dtype in dtypes)
        if self.varies:
            assert max_length is not None
            values = max_length * math.prod(self.shape[1:])
            return FeatureOptions.model_validate({"type": kind, "max_length": values})
        return FeatureOptions.model_validate({"type": kind, "shape": self.shape or None})

    def convert(self, parsed: Sample) -> Sample:
        """Returns the fields of a parsed record. Runs inside the pipeline's graph."""
        values = parsed[self.name]
        if self.dtype == "uint64":
            values = tf.bitcast(values, tf.uint64)
        elif values.dtype != tf.string:
            values = tf.cast(values, self.dtype)
        if not self.varies:
            return {self.name: values}
        length, inner = parsed[length_field(self.name)], self.shape[1:]
        count = values.shape[0] // math.prod(inner)
        fields = {self.name: tf.reshape(values, [count, *inner])}
        return {**fields, length_field(self.name): length // math.prod(inner)}


@dataclass
class Leaves:
    """A data set's features by name, and the reasons why some cannot be served."""

    found: dict[str, Leaf] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Node) -> Leaves:
        leaves = cls()
        for name, leaf in _walk("", node, ()):
            if isinstance(leaf, str):
                leaves.left_out[name] = leaf
            else:
                leaves.found[name] = leaf
        return leaves

    def require_lengths(self, max_length: Mapping[str, int]) -> None:
        """Leaves out features of varying length without a maximum."""
        for name, leaf in list(self.found.items()):
            if leaf.varies and name not in max_length:
                self.left_out[name] = f"its length varies; give max_length: {{{name}: ...}}"
                del self.found[name]


def _walk(name: str, node: Node, outer: Shape) -> Iterator[tuple[str, Leaf | str]]:
    """Yields the name of each feature below a node, with the reason if it cannot be served. `outer`
    is the length of the enclosing sequence."""
    if node.features_dict is not None:
        for key, child in sorted(node.features_dict.features.items()):
            yield from _walk(f"{name}/{key}" if name else key, child, outer)
    elif node.translation is not None and node.class_name == "Translation":
        for language in sorted(node.translation.languages):
            yield f"{name}/{language}", Leaf(f"{name}/{language}", "string", outer)
    elif node.sequence is not None and node.class_name == "Sequence" and not outer:
        yield from _walk(name, node.sequence.feature, (node.sequence.length,))
    else:
        yield name, _leaf(name, node, outer)


def _leaf(name: str, node: Node, outer: Shape) -> Leaf | str:
    leaf = Leaf(name, "string", outer)  # a text, or an encoded image
    tensor = node.tensor or node.bounding_box
    if node.class_label is not None:
        leaf = Leaf(name, "int64", outer, is_class=True)
    elif node.image is not None and node.image.dtype.startswith("float"):
        return "an image of floating-point numbers"
    elif node.text is None and node.image is None:
        if tensor is None or (node.sequence is not None and outer):
            return "a sequence in a sequence" if outer else node.class_name or "unknown"
        if tensor.encoding.lower() != "none":
            return f"encoding {tensor.encoding}"
        leaf = Leaf(name, tensor.dtype, (*outer, *tensor.shape.dimensions))
    if not any(leaf.dtype in dtypes for dtypes in _STORED.values()):
        return f"data type {leaf.dtype}"
    if _VARIES in leaf.shape[1:] or any(size < 1 for size in leaf.shape if size != _VARIES):
        return f"shape {list(leaf.shape)}"
    return leaf
