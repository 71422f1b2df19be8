"""An amended run of two fake pipelines, each of which has a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from infeed.cursor import Cursor
from infeed.shared.spec import Array, Cast
from infeed.shared.spec.segment import Lineage, Segment, lineage_from_proto
from infeed.testing import FakeTransport
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2

SAMPLES = 50


class AmendedFake(FakeTransport):
    """Serves runs with segments: position p of segment number s has sample 3 p + s."""

    lineage: Lineage = ()

    def answer(self, requests: Iterator[stream_pb2.StreamBatchesRequest]) -> Iterator[bytes]:
        first = next(requests)
        self.lineage = lineage_from_proto(first.open.lineage)
        return super().answer(chain([first], requests))

    def call(
        self, method: str, request: service.DescribeSlotsRequest, timeout: float = 20.0
    ) -> service.DescribeSlotsResponse:
        """Describes positions."""
        self.lineage = lineage_from_proto(request.run.lineage)
        ids = self.sample_ids(0, request.start, request.count).tolist()
        slots = [
            service.Slot(position=position, epoch=position // SAMPLES, sample_id=sample)
            for position, sample in enumerate(ids, request.start)
        ]
        return service.DescribeSlotsResponse(slots=slots)

    def sample_ids(self, seed: int, start: int, count: int) -> Array:
        return ids_at(self.lineage, start, count)


def ids_at(lineage: Lineage, start: int, count: int) -> Array:
    """Returns the samples of positions."""
    positions = np.arange(start, start + count)
    starts = [segment.start for segment in lineage]
    return (3 * positions + np.searchsorted(starts, positions, "right")) % SAMPLES


def amended_run(old_name: str = "old") -> tuple[AmendedFake, AmendedFake, Cursor]:
    """Returns the old pipeline, the new one, and a cursor: 10 steps of two ranks with batches of 4,
    then steps of one rank with batches of 6, of another seed."""
    arrays: dict[str, Any] = {"x": np.arange(SAMPLES), "text": np.array([b"a", b""] * 25, object)}
    old = AmendedFake(arrays, name=old_name, batch_size=4)
    new = AmendedFake(arrays, name="new", finish_transforms=[Cast("x", "float32")])
    place = {"offset": 0, "epoch_end": 1000, "sample_count": SAMPLES, "shuffle": "global"}
    first = Segment(
        step=0,
        start=0,
        pipeline="old",
        fingerprint=old.spec.fingerprint,
        seed=3,
        batch_size=4,
        world_size=2,
        epoch=0,
        **place,
    )
    second = Segment(
        step=10,
        start=80,
        pipeline="new",
        fingerprint=new.spec.fingerprint,
        seed=5,
        batch_size=6,
        world_size=1,
        epoch=1,
        **place,
    )
    cursor = Cursor("new", second.fingerprint, 5, 110, segments=(first, second))
    return old, new, Cursor.from_json(cursor.to_json())
