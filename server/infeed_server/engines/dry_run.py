"""Batches that are made and encoded as for a trainer, and not sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from contextlib import closing

from infeed.v1 import stream_pb2
from infeed.wire.batch import Payload, encode_batch
from infeed_server.engines.base import Answer, Engine, HostBatch, Request, Session, Trainer

_IN_FLIGHT = 8
"""Requests that are under way: fewer than the engine reads ahead would let it wait."""


def dry_run(engine: Engine, slots: int, requests: Iterable[Request]) -> Generator[None]:
    """Answers requests for batches of so many slots; yields when each is encoded. Raises the
    errors of the engine. Requests behind the end of the data are not allowed."""
    spec = engine.spec
    with closing(engine.open(slots, 0, Trainer())) as session:
        session.set_batch_bytes(slots * sum(field.sample_bytes or 0 for field in spec.wire_spec))
        pending: deque[Future[Answer]] = deque()
        for request in requests:
            pending.append(session.submit(request))
            if len(pending) == _IN_FLIGHT:
                _encode(engine, session, pending.popleft())
                yield
        while pending:
            _encode(engine, session, pending.popleft())
            yield


def _encode(engine: Engine, session: Session, answer: Future[Answer]) -> None:
    made = answer.result()
    assert isinstance(made, HostBatch)
    data = (Payload(engine.spec.wire_spec, made.arrays), made.sample_ids, made.mask)
    request = stream_pb2.BatchRequest()
    for message in encode_batch(request, made.start, made.epoch, *data).messages():
        b"".join(message)
    session.on_sent()
