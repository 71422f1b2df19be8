"""Questions about the order of a run: what its positions have, and where a sample is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from infeed.shared.errors import (
    InvalidRequestError,
    SampleError,
    SampleNotFoundError,
    shorten,
)
from infeed.shared.spec import Array
from infeed.v1 import feed_service_pb2 as service
from infeed_server.engines.base import RunKey
from infeed_server.engines.indexed.bad_samples import BadSampleHandler
from infeed_server.engines.indexed.examination import find_bad_sample
from infeed_server.engines.indexed.sample_search import find_samples
from infeed_server.order import Order, as_run
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.sample_key import format_key
from infeed_server.sources.base import Sample, Source
from infeed_server.sources.python.mapped import MappedSource
from infeed_server.transforms.base import Step
from infeed_server.transforms.decode import DecodeAndCrop

T = TypeVar("T")

_MAX_FOUND, _MAX_FOUND_POSITIONS = 1000, 20_000
"""Samples of one answer, and about how many positions they may have together."""

_MAX_SECONDS = 10.0
"""Time for the positions of one answer: their number does not bound the work."""

_MAX_SUBSTITUTES = 100
"""Substitutes in a row that are tried for a sample that is found to be bad."""

_MAX_TEXT = 500
"""Characters of a text that is shown: a field, or a message."""


class OrderQueries:
    """Answers for one indexed pipeline. Thread-safe."""

    def __init__(self, plan: IndexedPlan, bad_samples: BadSampleHandler) -> None:
        self._plan = plan
        self._bad_samples = bad_samples
        self._masks = plan.spec.on_error == "mask"
        self._reading = threading.Lock()
        """One call works at a time: trainers must not notice how many there are."""

    def one_by_one(self, items: Iterator[T]) -> Iterator[T]:
        """Yields items that are each made while no other call makes one."""
        while True:
            with self._reading:
                item = next(items, None)
            if item is None:
                return
            yield item

    def describe(self, run: RunKey, positions: range, *, draws: bool) -> Iterator[service.Slot]:
        """Yields what consecutive positions have. `draws`: each sample is read and
        transformed, also to find out whether it is bad."""
        order, bad = self._order(run)
        found = order.slots(positions.start, len(positions))
        ids = np.where(np.isin(found.index, bad), -1, found.index) if self._masks else found.index
        known = self._plan.source.known_fields()
        for row, (position, index) in enumerate(zip(positions, ids.tolist(), strict=True)):
            sample, key, seen = index, found.key[row], _Seen()
            if draws and sample >= 0:
                sample, key, seen = self._look(order, position, sample, key)
            elif sample >= 0:
                seen.fields = {name: values[sample] for name, values in known.items()}
            slot = service.Slot(position=position, epoch=int(found.epoch[row]), sample_id=sample)
            if sample >= 0:
                self._fill(slot, key, seen)
            yield slot

    def find(self, run: RunKey, sample: str, epochs: int) -> service.FindSampleResponse:
        """Returns where a sample is in so many epochs, by index, file or label."""
        order = as_run(self._order(run)[0])
        end = time.monotonic() + _MAX_SECONDS  # also of waiting for other calls
        limit = max(1, min(_MAX_FOUND, _MAX_FOUND_POSITIONS // epochs))
        with self._reading:
            found = [*islice(find_samples(self._plan, sample), limit + 1)]
        if not found:
            raise SampleNotFoundError(
                f"{self._plan.spec.name!r} has no sample {sample!r}: give an index from 0 to "
                f"{len(self._plan.source) - 1}, the end of a file's path, or label:VALUE",
                looked_for=sample,
            )
        answer = service.FindSampleResponse(more=len(found) > limit)
        for index in found[:limit]:
            visits: list[tuple[int, int]] = []
            for some in self.one_by_one(order.visits_of(index, epochs)):
                visits += some
                if time.monotonic() > end:
                    break
            if time.monotonic() > end:
                if not answer.samples:
                    raise InvalidRequestError(
                        f"{self._plan.spec.name!r}: the positions of sample {index} in {epochs} "
                        f"epochs take more than {_MAX_SECONDS:g} seconds; ask for fewer epochs",
                        looked_for=sample,
                    )
                answer.more = True
                break
            answer.samples.add(
                sample_id=index,
                file=_text(self._plan.source.provenance(index).file),
                epochs=[epoch for epoch, _ in visits],
                positions=[position for _, position in visits],
                is_removed=bool(np.isin(index, order.last.removed.ids)),
            )
        return answer

    def _order(self, run: RunKey) -> tuple[Order, Array]:
        """Returns the order of what is delivered, and the samples that are known to be bad."""
        order, bad = self._plan.order(*run), self._bad_samples.known()
        if not bad.size or self._masks:
            return order, bad
        if 2 * bad.size > order.count:
            raise SampleError(
                f"{self._plan.spec.name!r}: {bad.size} of {order.count} samples are bad, too many "
                "to follow their substitutes; repair the files, or see the quarantine log"
            )
        return order.without(bad), bad

    def _look(
        self, order: Order, position: int, sample: int, key: Array
    ) -> tuple[int, Array, _Seen]:
        """Reads and transforms the sample at a position, or the one that is there in its place.
        Returns what is delivered: -1 for an empty slot."""
        source, steps = self._plan.uncached
        keyed = source.keyed_stages if isinstance(source, MappedSource) else ()
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
            if self._masks:
                return -1, key, seen
            drawn = order.at(position).substitute(sample, key)
            sample, key = int(drawn.index[0]), drawn.key[0]
        return sample, key, seen

    def _fill(self, slot: service.Slot, key: Array, seen: _Seen) -> None:
        origin = self._plan.source.provenance(slot.sample_id)
        slot.file = _text(origin.file)
        if origin.offset is not None:
            slot.offset = origin.offset
        slot.key.extend(np.asarray(key).tolist())
        slot.fields = _to_json(seen.fields)
        for path, drawn in seen.draws:
            slot.draws.add(transform=path, parameters=_to_json(drawn))


class _Seen:
    """What is seen of a sample while it is read and transformed: its small fields, and draws."""

    def __init__(self, key: Array | None = None, keyed: Sequence[str] = ()) -> None:
        """`keyed` are functions in Python that draw from the key."""
        self.fields: Mapping[str, Any] = {}
        self.draws: list[tuple[str, Mapping[str, Any]]] = []
        self._key, self._keyed = key, keyed

    def look(self, stage: Source | Step, sample: Sample) -> None:
        """Notes what `find_bad_sample` shows."""
        if isinstance(stage, Source):
            self.fields = stage.parse(sample)
            # Also of a try before, which a fault of storage ended.
            self.draws = [(name, {"key": self._key}) for name in self._keyed]
        elif stage[1].random:
            ordinal, transform = stage
            drawn = transform.draw(sample, sample_graph.step_key(stage, tf.constant(self._key)))
            named = transform.crop if isinstance(transform, DecodeAndCrop) else transform
            self.draws.append((f"transforms[{ordinal}].{named.name}", drawn))


def _to_json(values: Mapping[str, Any]) -> str:
    """Returns numbers and short texts as JSON, without what is larger."""
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
    number = float(str(value))  # the shortest one of its type
    return number if np.isfinite(number) else str(number)


def _text(path: str) -> str:
    """Returns a path without lone surrogates, which a message cannot have."""
    return path.encode(errors="replace").decode()
