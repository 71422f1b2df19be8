"""The run of a whole pipeline: the engine of a server, without trainers and network."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future

from infeed.shared.report import ServerReport
from infeed.v1 import stream_pb2
from infeed.wire.batch import encode_batch
from infeed_server.engines.base import Answer, Engine, HostBatch, Request, Trainer
from infeed_server.observe.pipeline_reports import PipelineReports

_IN_FLIGHT = 8
"""Requests that are under way: fewer than the engine reads ahead would let it wait."""

_WARM_BATCHES = 2 * _IN_FLIGHT
"""Batches before the measurement: fewer would count what was made while the graph was started."""


def run_engine(engine: Engine, seconds: float) -> ServerReport:
    """Runs an engine for so many seconds, and returns its report.

    The warm-up is a quarter of the time, and a few batches at least: tf.data chooses its
    parallelism meanwhile. Bad samples should be substituted: else the first ends the run.
    """
    batches, reports, name = _batches(engine), PipelineReports(), engine.spec.name
    reports.watch(name, engine.state_seconds)
    begin = time.perf_counter()
    for number, _ in enumerate(batches, start=1):
        warm = time.perf_counter() - begin
        if warm >= seconds or (number >= _WARM_BATCHES and warm >= seconds / 4):
            break
    reports.update({name: {"batches": 0, "bytes": 0}})
    begin, count = time.perf_counter(), 0
    while not count or time.perf_counter() - begin < seconds:
        next(batches)
        count += 1
    reports.update({name: {"batches": count, "bytes": 0}})
    batches.close()
    return reports.report(name)


def _batches(engine: Engine) -> Generator[None]:
    """Makes batch after batch, and encodes each as for a trainer."""
    spec = engine.spec
    size = spec.batch_size
    session = engine.open(size, 0, Trainer())
    session.set_batch_bytes(size * sum(field.sample_bytes or 0 for field in spec.wire_spec))
    pending: deque[Future[Answer]] = deque()
    start = 0
    try:
        while True:
            while len(pending) < _IN_FLIGHT:
                pending.append(session.submit(Request(spec.seed, start, spec.stride(size), size)))
                start += spec.stride(size)
            batch = pending.popleft().result()
            assert isinstance(batch, HostBatch)  # the data has no end
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
            yield
    finally:
        session.close()
