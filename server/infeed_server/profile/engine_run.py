"""The run of a whole pipeline: the engine of a server, without trainers and network."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing

import tensorflow as tf

from infeed.shared.errors import InfeedError
from infeed.shared.spec import PipelineSpec
from infeed.v1 import stream_pb2
from infeed.wire.batch import encode_batch
from infeed_server.engines.base import Answer, HostBatch, Request, Trainer
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.engines.indexed.quarantine import QuarantineLog
from infeed_server.engines.memory_budget import MemoryBudget, default_limit
from infeed_server.engines.monitor import Monitors
from infeed_server.engines.tf_iterator import TfIterator
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.sequential_plan import SequentialPlan
from infeed_server.profile.clock import Clock
from infeed_server.profile.figures import Run

_IN_FLIGHT = 8
"""Requests that are under way: more than the engine reads ahead, so that it never waits."""

_WARM_BATCHES = 2 * _IN_FLIGHT
"""Batches before the measurement: those that were made while the graph was traced and started."""

_REPORT_INTERVAL_SECONDS = 0.2
"""The time between two figures: the CPU time of all processes takes a millisecond to read."""


def run_indexed(clock: Clock, plan: IndexedPlan, seconds: float) -> Iterator[Run]:
    """Runs the engine for so many seconds; yields the figures so far, several times a second.

    The plan should substitute bad samples: else the first of them ends the run with its error.
    Closes the plan's source.
    """
    spec = plan.spec
    engine = IndexedEngine(plan, _NoLog(), Monitors(), MemoryBudget(default_limit()))
    try:
        yield from _timed(clock, _batches(engine, spec), seconds)
    finally:
        engine.close()


def run_dataset(clock: Clock, plan: SequentialPlan, seconds: float) -> Iterator[Run]:
    """Reads a dataset from its beginning, as `run_indexed` does; it is repeated if it is short."""
    spec = plan.spec

    def batches() -> Iterator[int]:
        while True:
            count = 0
            with closing(TfIterator(plan.dataset(spec.seed, spec.batch_size))) as elements:
                for element in elements:
                    count += 1
                    yield int(next(iter(element.values())).shape[0])
            if not count:
                raise plan.empty_error()

    try:
        yield from _timed(clock, batches(), seconds)
    except tf.errors.OpError as error:
        raise plan.explain(error) or error from error


def _batches(engine: IndexedEngine, spec: PipelineSpec) -> Iterator[int]:
    """Yields the samples of each batch, after it was encoded as for a trainer."""
    size = spec.batch_size
    session = engine.open(size, 0, Trainer())
    session.set_batch_bytes(size * sum(field.sample_bytes or 0 for field in spec.wire_spec))
    pending: deque[Future[Answer]] = deque()
    start = 0
    try:
        while True:
            while len(pending) < _IN_FLIGHT:
                pending.append(session.submit(Request(spec.seed, start, size, size)))
                start += size
            batch = pending.popleft().result()
            assert isinstance(batch, HostBatch)
            encoded = encode_batch(
                stream_pb2.BatchRequest(),
                batch.start,
                batch.epoch,
                spec.wire_spec,
                batch.arrays,
                batch.sample_ids,
                batch.mask,
            )
            for _ in encoded.messages():
                pass
            session.on_sent()
            yield int(batch.mask.sum())
    finally:
        session.close()


def _timed(clock: Clock, batches: Iterator[int], seconds: float) -> Iterator[Run]:
    """Yields the figures of batches so far, from the end of the warm-up on.

    The warm-up is a quarter of the time, and a few batches at least: tf.data chooses its
    parallelism meanwhile.
    """
    begin = clock.wall()
    warm = 0
    while warm < _WARM_BATCHES or clock.wall() - begin < seconds / 4:
        next(batches)
        warm += 1
        if clock.wall() - begin >= seconds:
            break  # batches that take seconds each
    delay = clock.total_delay()
    wall, cpu, host = clock.wall(), clock.total_cpu(), clock.host_cpu()
    samples, last = 0, 0.0
    for count in batches:
        samples += count
        elapsed = clock.wall() - wall
        if elapsed - last < min(_REPORT_INTERVAL_SECONDS, seconds):
            continue
        last = elapsed
        used = clock.total_cpu() - cpu
        others = max(0.0, clock.host_cpu() - host - used)
        yield Run(samples, elapsed, used, others, clock.total_delay() - delay)
        if elapsed >= seconds:
            return


class _NoLog(QuarantineLog):
    """A quarantine that keeps nothing: a profile writes no file."""

    def __init__(self) -> None:
        super().__init__("", "", "substitute")

    def add(self, error: InfeedError) -> bool:  # noqa: ARG002
        return True
