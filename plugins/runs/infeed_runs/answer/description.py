"""Descriptions of slots: the sample at each position, its fields, key and random draws."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import shorten
from infeed.shared.spec import Array, parts_of
from infeed.v1 import feed_service_pb2 as service
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.engines.indexed.examination import find_bad_sample
from infeed_server.order import RunOrder
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.sample_key import format_key
from infeed_server.sources.base import Sample, Source
from infeed_server.transforms.base import Step
from infeed_server.transforms.decode import DecodeAndCrop

_MAX_SUBSTITUTES = 100
"""Substitutes tried in a row for a bad sample."""

_MAX_TEXT = 500
"""Characters of a field; longer ones are left out, and an error message is cut to half of it."""


class Describer:
    """Descriptions of the samples that an engine delivers in one order."""

    def __init__(self, engine: IndexedEngine, order: RunOrder) -> None:
        self._plan, self._order = engine.plan, order
        masks = engine.spec.on_error == "mask"
        self._masked = engine.known_bad() if masks else np.empty(0, np.int64)

    def describe(self, positions: range, *, draws: bool) -> Iterator[service.Slot]:
        """Yields the slots at consecutive positions. With `draws`, each sample is read and
        transformed, which also shows whether it is bad."""
        found = self._order.slots(positions.start, len(positions))
        ids = np.where(np.isin(found.index, self._masked), -1, found.index)
        known = self._plan.source.known_fields()
        for row, position in enumerate(positions):
            sample, key, seen = int(ids[row]), found.key[row], _Seen()
            if draws and sample >= 0:
                sample, key, seen = self._look(position, sample, key)
            elif sample >= 0:
                seen.fields = {name: values[sample] for name, values in known.items()}
            slot = service.Slot(position=position, epoch=int(found.epoch[row]), sample_id=sample)
            if sample >= 0:
                self._fill(slot, key, seen)
            yield slot

    def _look(self, position: int, sample: int, key: Array) -> tuple[int, Array, _Seen]:
        """Reads and transforms the sample at a position, or its substitute if it is bad. Returns
        the sample that is delivered, -1 for an empty slot."""
        source, steps = self._plan.uncached
        keyed = source.keyed_stages
        for _ in range(_MAX_SUBSTITUTES):
            seen = _Seen(key, keyed)
            failure = find_bad_sample(source, steps, sample, key, seen.look)
            if failure is None:
                break
            if self._plan.spec.on_error == "raise":
                stage = failure.error.metadata.get("stage", "")
                seen.draws.append(
                    (stage, {"error": shorten(failure.error.message, _MAX_TEXT // 2)})
                )
                break
            if self._plan.spec.on_error == "mask":
                return -1, key, seen
            drawn = self._order.at(position).order.substitute(sample, key)
            sample, key = int(drawn.index[0]), drawn.key[0]
        return sample, key, seen

    def _fill(self, slot: service.Slot, key: Array, seen: _Seen) -> None:
        origin = self._plan.source.provenance(slot.sample_id)
        slot.file = to_text(origin.file)
        if origin.offset is not None:
            slot.offset = origin.offset
        slot.key.extend(np.asarray(key).tolist())
        part = parts_of(self._plan.spec.parts, np.array([slot.sample_id]))
        slot.fields = _to_json({**seen.fields, **({"part": part[0]} if part[0] else {})})
        for path, drawn in seen.draws:
            slot.draws.add(transform=path, parameters=_to_json(drawn))


class _Seen:
    """Observations of a sample while it is read and transformed: its small fields and draws."""

    def __init__(self, key: Array | None = None, keyed: Sequence[str] = ()) -> None:
        """`keyed` names the Python functions that draw from the key."""
        self.fields: Mapping[str, Any] = {}
        self.draws: list[tuple[str, Mapping[str, Any]]] = []
        self._key, self._keyed = key, keyed

    def look(self, stage: Source | Step, sample: Sample) -> None:
        """Records a stage that `find_bad_sample` runs, with the sample that enters it."""
        if isinstance(stage, Source):
            self.fields = stage.parse(sample)
            # Drops the draws of an earlier attempt that a storage fault ended.
            self.draws = [(name, {"key": self._key}) for name in self._keyed]
        elif stage[1].random:
            ordinal, transform = stage
            drawn = transform.draw(sample, sample_graph.step_key(stage, tf.constant(self._key)))
            named = transform.crop if isinstance(transform, DecodeAndCrop) else transform
            place = f"transforms[{ordinal}]" if ordinal >= 0 else "source"
            if drawn:  # a step that moves targets repeats the draws of the step before it
                self.draws.append((f"{place}.{named.name}", drawn))


def _to_json(values: Mapping[str, Any]) -> str:
    """Returns numbers and short texts as JSON; leaves out anything larger."""
    shown = {name: _shown(name, np.asarray(value)[()]) for name, value in values.items()}
    return json.dumps({name: value for name, value in shown.items() if value is not None})


def _shown(name: str, value: Any) -> Any:
    if name == "key":
        return format_key(value)
    if isinstance(value, np.ndarray):
        return None
    if isinstance(value, bytes):
        try:
            value = value[: _MAX_TEXT + 1].decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, str):
        return str(value) if len(value) <= _MAX_TEXT else None
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    number = float(str(value))  # the shortest decimal for its type
    return number if np.isfinite(number) else str(number)


def to_text(path: str) -> str:
    """Returns a path without lone surrogates, which a protobuf string cannot hold."""
    return path.encode(errors="replace").decode()
