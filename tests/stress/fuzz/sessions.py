"""Sessions of a real server, recorded byte by byte, for clients to be told in other words."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import FEED, event, headers
from tests.stress.fuzz.peer import Answer, Peer
from tests.stress.fuzz.server_under_test import ServerUnderTest

from infeed.assembly import Asked, Assembler, Expected, Received
from infeed.batch import Batch
from infeed.buffers import Buffers
from infeed.cursor import Shard
from infeed.job import Job, new_job
from infeed.spec import PipelineSpec
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2

_SECONDS = 180.0
_FRAME_BYTES = 1 << 14

NAMES = ("numbers", "files", "photos")


class _Recorder(Peer):
    """A peer that keeps what the server has said."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._settings = b""
        self._headers_heard: list[bytes] = []

    def heard(self, answer: Answer) -> bytes:
        """The server's own frames in an order that does not depend on the moment: a message each
        frame of data, and nothing about windows. Then a case says the same in every run."""
        first, last = self._headers_heard
        data = [frames.frame(frames.DATA, 0, 1, part) for part in _parts(bytes(answer.data))]
        acknowledged = frames.frame(frames.SETTINGS, frames.ACK, 0)
        return self._settings + acknowledged + first + b"".join(data) + last

    def _on(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        whole = frames.frame(kind, flags, stream, body)
        if kind == frames.SETTINGS and not flags:
            self._settings += whole
        elif kind == frames.HEADERS:
            self._headers_heard.append(whole)
        super()._on(kind, flags, stream, body)


def _parts(data: bytes) -> Iterator[bytes]:
    for message in split(data):
        whole = frames.message(message)
        yield from (whole[at : at + _FRAME_BYTES] for at in range(0, len(whole), _FRAME_BYTES))


@dataclass(frozen=True)
class Session:
    """What a server said to one trainer that asked for all of one epoch."""

    spec: PipelineSpec
    job: Job
    described: bytes
    """The bytes of the answer to GetPipeline, as HTTP/2."""
    streamed: bytes
    """Those of the answer to StreamBatches."""
    messages: tuple[bytes, ...]
    """The messages in those."""
    batches: dict[int, Batch]
    """The right ones, by step."""

    @property
    def asked(self) -> Iterator[Asked]:
        return iter([Asked(step, self.job.plan.at(step)[0]) for step in range(self.steps)])

    @property
    def steps(self) -> int:
        return self.job.plan.steps or 0

    def assembler(self) -> Assembler:
        return Assembler(self.expected, self.asked, Buffers())

    @property
    def expected(self) -> Expected:
        return self.job.expected


def record(server: ServerUnderTest) -> tuple[Session, ...]:
    return tuple(_record(server, name) for name in NAMES)


def _record(server: ServerUnderTest, name: str) -> Session:
    body = service.GetPipelineRequest(name=name).SerializeToString()
    described, answer = _call(server.address, "GetPipeline", [frames.message(body)])
    told = service.GetPipelineResponse.FromString(bytes(answer.data[5:]))
    spec = PipelineSpec.from_proto(told.pipeline)
    job = job_of(spec)
    requests = [event(open=job.open)]
    for step in range(job.plan.steps or 0):
        start, count = job.plan.at(step)
        batch = stream_pb2.BatchRequest(request_id=step, start=start, count=count)
        requests.append(event(batch=batch))
    streamed, answer = _call(server.address, "StreamBatches", requests)
    messages = tuple(split(bytes(answer.data)))
    session = Session(spec, job, described, streamed, messages, {})
    for received in replay(session.assembler(), messages):
        session.batches[received.step] = received.batch
    assert len(session.batches) == session.steps
    return session


def job_of(spec: PipelineSpec) -> Job:
    """One epoch of a pipeline, for a trainer that is alone."""
    return new_job(
        spec,
        batch_size=None,
        shard=Shard(),
        seed=None,
        epochs=1,
        remainder="pad",
        cursor=None,
        finish="trainer",
        job_name=None,
        prefetch_bytes=1 << 20,
        reconnect_timeout=0.1,
    )


def split(data: bytes) -> Iterator[bytes]:
    """The messages of gRPC's framing."""
    at = 0
    while at < len(data):
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        yield data[at + 5 : end]
        at = end


def replay(assembler: Assembler, messages: Sequence[bytes]) -> Iterator[Received]:
    """What the messages complete. Raises what the assembler does."""
    for message in messages:
        rest = memoryview(message)

        def read_into(memory: memoryview) -> None:
            nonlocal rest
            if len(memory) > len(rest):
                raise EOFError  # what a message that is too short comes to: the call notices
            memory[:] = rest[: len(memory)]
            rest = rest[len(memory) :]

        done = assembler.take(len(message), read_into)
        if isinstance(done, Received):
            yield done


def _call(address: str, method: str, parts: Sequence[bytes]) -> tuple[bytes, Answer]:
    peer = _Recorder(address)
    peer.greet()
    answer = peer.expect(1)
    peer.raw(frames.headers(1, headers(FEED + method)))
    for number, part in enumerate(parts, 1):
        peer.data(1, part, end=number == len(parts))
    deadline = time.monotonic() + _SECONDS
    while not answer.ended:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{method} was not answered")
        poll = select.poll()
        poll.register(peer.fileno(), select.POLLIN | select.POLLOUT * peer.wants_to_send)
        poll.poll(100)
        peer.send()
        peer.receive()
    peer.close()
    assert answer.status == "0", answer.message
    return peer.heard(answer), answer
