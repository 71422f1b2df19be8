"""Recorded sessions of a real server, to be changed and replayed to clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from tests.stress.fuzz.kinds import FEED, event

from infeed.batch import Batch
from infeed.cursor import Shard
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.served_plan import plan_feed
from infeed.shared.spec import PipelineSpec
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2
from infeed.wire.assembler import BatchAssembler, PendingRequest, ReceivedBatch
from infeed.wire.buffer_pool import BufferPool

_TIMEOUT_SECONDS = 180.0

NAMES = ("numbers", "files", "photos")


@dataclass(frozen=True)
class Session:
    """Responses of a server to one trainer that requested one epoch."""

    spec: PipelineSpec
    plan: FeedPlan
    messages: tuple[bytes, ...]
    """Messages in the response to StreamBatches."""
    batches: dict[int, Batch]
    """Decoded batches, by step."""

    @property
    def steps(self) -> int:
        return self.plan.shard_plan.steps or 0

    def assembler(self) -> BatchAssembler:
        requests = deque(PendingRequest(request(self.plan, step)) for step in range(self.steps))
        return BatchAssembler(self.plan.contract, requests, BufferPool())


def record(address: str) -> tuple[Session, ...]:
    return tuple(_record(address, name) for name in NAMES)


def _record(address: str, name: str) -> Session:
    body = service.GetPipelineRequest(name=name).SerializeToString()
    (answer,) = _call(address, "GetPipeline", [body])
    message = service.GetPipelineResponse.FromString(answer)
    spec = PipelineSpec.from_proto(message.pipeline)
    plan = plan_epoch(spec)
    steps = range(plan.shard_plan.steps or 0)
    requests = [event(open=plan.contract.opening)]
    requests += [event(batch=request(plan, step)) for step in steps]
    messages = tuple(_call(address, "StreamBatches", requests))
    session = Session(spec, plan, messages, {})
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


def _call(address: str, method: str, messages: Sequence[bytes]) -> list[bytes]:
    """Returns the responses of a server, without heartbeats, so that a case is always the same."""
    heartbeat = stream_pb2.StreamBatchesResponse(heartbeat={}).SerializeToString()
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(FEED + method)
        responses = call(iter(messages), timeout=_TIMEOUT_SECONDS)
        return [response for response in responses if response != heartbeat]
