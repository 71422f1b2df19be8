"""Recorded sessions of a real server, to be changed and replayed to clients."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import FEED, event, headers
from tests.stress.fuzz.peer import Peer, Response
from tests.stress.fuzz.server_under_test import ServerUnderTest

from infeed.batch import Batch
from infeed.cursor import Shard
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.feed_plan import FeedPlan, plan_feed
from infeed.shared.spec import PipelineSpec
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2
from infeed.wire.assembler import BatchAssembler, PendingRequest, ReceivedBatch, StreamContract
from infeed.wire.buffer_pool import BufferPool

_TIMEOUT_SECONDS = 180.0
_FRAME_BYTES = 1 << 14

NAMES = ("numbers", "files", "photos")


class _Recorder(Peer):
    """Peer that records the server's frames."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._settings = b""
        self._header_frames: list[bytes] = []

    def recorded(self, response: Response) -> bytes:
        """Returns the server's frames in an order without timing: settings, headers, then one
        message per DATA frame, and no window updates. So a case is the same in every run."""
        first, last = self._header_frames
        data = [frames.frame(frames.DATA, 0, 1, part) for part in _parts(bytes(response.data))]
        acknowledged = frames.frame(frames.SETTINGS, frames.ACK, 0)
        return self._settings + acknowledged + first + b"".join(data) + last

    def _on_frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        whole = frames.frame(kind, flags, stream, body)
        if kind == frames.SETTINGS and not flags:
            self._settings += whole
        elif kind == frames.HEADERS:
            self._header_frames.append(whole)
        super()._on_frame(kind, flags, stream, body)


def _parts(data: bytes) -> Iterator[bytes]:
    for message in split(data):
        whole = frames.message(message)
        for start in range(0, len(whole), _FRAME_BYTES):
            yield whole[start : start + _FRAME_BYTES]


@dataclass(frozen=True)
class Session:
    """Responses of a server to one trainer that requested one epoch."""

    spec: PipelineSpec
    plan: FeedPlan
    pipeline_response: bytes
    """HTTP/2 bytes of the response to GetPipeline."""
    stream_response: bytes
    """HTTP/2 bytes of the response to StreamBatches."""
    messages: tuple[bytes, ...]
    """Messages in the response to StreamBatches."""
    batches: dict[int, Batch]
    """Decoded batches, by step."""

    @property
    def requests(self) -> Iterator[PendingRequest]:
        return iter([PendingRequest(request(self.plan, step)) for step in range(self.steps)])

    @property
    def steps(self) -> int:
        return self.plan.shard_plan.steps or 0

    def assembler(self) -> BatchAssembler:
        return BatchAssembler(self.contract, self.requests, BufferPool())

    @property
    def contract(self) -> StreamContract:
        return self.plan.contract


def record(server: ServerUnderTest) -> tuple[Session, ...]:
    return tuple(_record(server, name) for name in NAMES)


def _record(server: ServerUnderTest, name: str) -> Session:
    body = service.GetPipelineRequest(name=name).SerializeToString()
    pipeline_response, response = _call(server.address, "GetPipeline", [frames.message(body)])
    message = service.GetPipelineResponse.FromString(bytes(response.data[5:]))
    spec = PipelineSpec.from_proto(message.pipeline)
    plan = plan_epoch(spec)
    steps = range(plan.shard_plan.steps or 0)
    requests = [event(open=plan.open_message)]
    requests += [event(batch=request(plan, step)) for step in steps]
    stream_response, response = _call(server.address, "StreamBatches", requests)
    messages = tuple(split(bytes(response.data)))
    session = Session(spec, plan, pipeline_response, stream_response, messages, {})
    for received in replay_messages(session.assembler(), messages):
        session.batches[received.step] = received.batch
    assert len(session.batches) == session.steps
    return session


def request(plan: FeedPlan, step: int) -> stream_pb2.BatchRequest:
    start, count = plan.shard_plan.batch_range(step)
    return stream_pb2.BatchRequest(request_id=step, start=start, count=count)


def plan_epoch(spec: PipelineSpec) -> FeedPlan:
    """Returns the plan of one epoch of a pipeline for a single trainer."""
    return plan_feed(spec, FeedOptions(shard=Shard(), epochs=1, remainder="pad"))


def split(data: bytes) -> Iterator[bytes]:
    """Yields the messages of gRPC's framing."""
    start = 0
    while start < len(data):
        end = start + 5 + int.from_bytes(data[start + 1 : start + 5], "big")
        yield data[start + 5 : end]
        start = end


def replay_messages(
    assembler: BatchAssembler, messages: Sequence[bytes]
) -> Iterator[ReceivedBatch]:
    """Yields the batches that the messages complete. Raises the assembler's errors."""
    for message in messages:
        rest = memoryview(message)

        def read_into(memory: memoryview) -> None:
            nonlocal rest
            if len(memory) > len(rest):
                raise EOFError  # truncated message, as in a call
            memory[:] = rest[: len(memory)]
            rest = rest[len(memory) :]

        result = assembler.read_message(len(message), read_into)
        if isinstance(result, ReceivedBatch):
            yield result


def _call(address: str, method: str, parts: Sequence[bytes]) -> tuple[bytes, Response]:
    peer = _Recorder(address)
    peer.send_preface()
    response = peer.expect(1)
    peer.raw(frames.headers(1, headers(FEED + method)))
    for number, part in enumerate(parts, 1):
        peer.data(1, part, end=number == len(parts))
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not response.ended:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no response to {method} within {_TIMEOUT_SECONDS:g} s")
        poll = select.poll()
        poll.register(peer.fileno(), select.POLLIN | select.POLLOUT * peer.wants_to_send)
        poll.poll(100)
        peer.send()
        peer.receive()
    peer.close()
    assert response.status == "0", response.message
    return peer.recorded(response), response
