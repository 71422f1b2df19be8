"""Answers become messages on threads of their own: while one is sent, the next is encoded."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass

from infeed.errors import ServerUnavailableError
from infeed.v1 import stream_pb2
from infeed.wire import EncodedBatch
from infeed_server.engines import host
from infeed_server.engines.base import Answer
from infeed_server.engines.monitor import Monitor
from infeed_server.rpc.call import Framed, framed
from infeed_server.service.catalog import Stream


@dataclass(frozen=True)
class Encoded:
    """An answer as it travels, and what there is to count of it."""

    messages: Framed
    samples: int | None
    """That are filled; None for what is no batch."""
    payload_bytes: int


class Encoder:
    """Encodes the answers of all streams, as many at a time as there are processors."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._pool = ThreadPoolExecutor(host.processors(), "infeed-encode")

    def encode(self, stream: Stream, request_id: int, answer: Future[Answer]) -> Future[Encoded]:
        """The answer's messages, later. Cancelled when the answer is."""
        encoded: Future[Encoded] = Future()

        # Must not hold the answer, which holds it: such a circle keeps a batch in memory until
        # the interpreter looks for circles, which it seldom does.
        def come(answered: Future[Answer]) -> None:
            try:
                self._pool.submit(self._encode, stream, request_id, answered, encoded)
            except RuntimeError:  # the pool is closed
                encoded.set_exception(ServerUnavailableError("the server is shutting down"))

        answer.add_done_callback(come)
        return encoded

    def close(self) -> None:
        self._pool.shutdown()

    def _encode(
        self, stream: Stream, request_id: int, answer: Future[Answer], encoded: Future[Encoded]
    ) -> None:
        try:
            encoded.set_result(self._encoded(stream, request_id, answer.result()))
        except CancelledError:
            encoded.cancel()
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            encoded.set_exception(error)

    def _encoded(self, stream: Stream, request_id: int, answer: Answer) -> Encoded:
        begin = time.perf_counter()
        batch = stream.encode(request_id, answer)
        if not isinstance(batch, EncodedBatch):
            end = stream_pb2.StreamBatchesResponse(end=batch)
            return Encoded(framed([end.SerializeToString()]), None, 0)
        messages = framed(*batch.frames())
        self._monitor.stage(stream.pipeline.name, "encode", time.perf_counter() - begin)
        filled = sum(sample >= 0 for sample in batch.header.sample_ids)
        return Encoded(messages, filled, batch.header.payload_size)
