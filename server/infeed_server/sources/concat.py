"""Concatenation: several sources as one, with samples numbered source by source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.class_names import class_conflict
from infeed_server.sources.places import Indices, Places, Provenance


class ConcatPlaces(Places):
    """The places of several sources, one after the other."""

    def __init__(self, parts: Sequence[Places]) -> None:
        self.parts = parts
        self.begins: Indices = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        stamps = [part.stamp for part in parts]
        self.stamp = _hash(stamps) if any(stamps) else ""

    def __len__(self) -> int:
        return int(self.begins[-1])

    def numbers(self, indices: Any) -> Any:
        """Returns the number of each sample's part."""
        return np.searchsorted(self.begins, indices, side="right") - 1

    def provenance(self, index: int) -> Provenance:
        number = int(self.numbers(index))
        return self.parts[number].provenance(index - int(self.begins[number]))

    def samples_in(self, end: str) -> Iterator[range]:
        for part, begin in zip(self.parts, self.begins.tolist(), strict=False):
            for found in part.samples_in(end):
                yield range(found.start + begin, found.stop + begin)

    def close(self) -> None:
        for part in self.parts:
            part.close()


class ConcatSource(Source):
    """The samples of several sources with the same columns, one source after the other."""

    def __init__(self, parts: Sequence[Source], names: Sequence[str]) -> None:
        """Takes ownership of the sources; `names` are for messages. Raises `ConfigError` if one
        differs from the first."""
        first = parts[0]
        for number, part in enumerate(parts[1:]):
            if problem := difference(part, first):
                raise ConfigError(
                    f"{names[number + 1]} {problem} in {names[0]}; make both alike, or mix them as "
                    "pipelines of their own",
                    at=("add", number),
                )
        self.parts = tuple(parts)
        self._places = ConcatPlaces([part.places for part in parts])
        super().__init__(
            self._places,
            first.columns,
            _hash(part.identity for part in parts),
            parsed=first.parsed,
            advice=next((part.advice for part in parts if part.advice), ""),
            classes={
                name: max((part.classes.get(name, ()) for part in parts), key=len)
                for name in {name for part in parts for name in part.classes}
            },
        )
        self.shown = {
            name: target
            for name, target in first.shown.items()
            if all(part.shown.get(name) == target for part in parts)
        }
        # What one part knows, first in the alphabet, holds for those that are "unclear".
        self.exif = min((part.exif for part in parts if part.exif), default="")

    def read(self, indices: Indices) -> Columns:
        numbers = self._places.numbers(indices)
        columns: Columns = {}
        for number in np.unique(numbers).tolist():
            slots = numbers == number
            found = self._read_part(number, indices[slots] - self._places.begins[number])
            if slots.all():
                return found
            for name, rows in found.items():
                if name not in columns:
                    columns[name] = np.empty((len(indices), *rows.shape[1:]), rows.dtype)
                columns[name][slots] = rows
        return columns

    @cached_property
    def _known(self) -> Mapping[str, npt.NDArray[Any]]:
        known = [part.known_fields() for part in self.parts]
        shared = [name for name in known[0] if all(name in fields for fields in known)]
        return {name: np.concatenate([fields[name] for fields in known]) for name in shared}

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        return self._known

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        found = [part.whole_field(name) for part in self.parts]
        values = [array for array in found if array is not None]
        return np.concatenate(values) if len(values) == len(found) else None

    def parse(self, columns: Sample) -> Sample:
        return self.parts[0].parse(columns)

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.parts

    def close(self) -> None:
        for part in self.parts:
            part.close()

    def _read_part(self, number: int, indices: Indices) -> Columns:
        try:
            return self.parts[number].read_checked(indices)
        except InfeedError as error:
            local = error.metadata.get("sample_id")
            if local is None:
                raise
            raise renumbered(error, int(local) + int(self._places.begins[number])) from error


def renumbered(error: InfeedError, index: int) -> InfeedError:
    """Returns a copy of an error about a sample, with the index in another source: several threads
    may wait for the original."""
    other = copy(error)
    other.metadata = {**error.metadata, "sample_id": str(index)}
    other.sample = None if error.sample is None else index
    return other


def difference(part: Source, first: Source) -> str:
    """Describes how a source differs from the first, up to the first one's name."""
    for name in {**first.columns, **part.columns}:
        mine, expected = part.columns.get(name), first.columns.get(name)
        if mine != expected:
            return f"has the column {name!r} {_describe(mine)}, which is {_describe(expected)}"
    if part.parsed != first.parsed or _graph(part) != _graph(first):
        return "has columns for other fields than those"
    for name, names in part.classes.items():
        if problem := class_conflict(names, first.classes.get(name, ())):
            return f"has the column {name!r} where {problem}"
    if {part.exif, first.exif} == {"apply", "ignore"}:
        return f"has labels for exif: {part.exif}, not {first.exif} as"
    return ""


def _graph(source: Source) -> bytes:
    """Returns the graph that parses columns: sources with equal graphs parse alike."""
    if source.parsed:
        return b""
    traced = tf.function(source.parse, autograph=False)
    graph = traced.get_concrete_function(dict(source.columns)).graph.as_graph_def()
    content: bytes = graph.SerializeToString(deterministic=True)
    return content


def _describe(spec: tf.TensorSpec | None) -> str:
    if spec is None:
        return "missing"
    return f"{spec.dtype.name}{spec.shape.as_list() if spec.shape.rank is not None else ''}"


def _hash(values: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()
