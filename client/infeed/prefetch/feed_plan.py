"""Feed plan: the user's options, resolved against the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from infeed.course import Course
from infeed.cursor import Cursor, ShardPlan
from infeed.http2.target import is_unix
from infeed.prefetch.byte_window import MAX_BATCHES, PrefetchWindow
from infeed.prefetch.feed_options import FeedOptions
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import FinishTransform, PipelineSpec, Spec
from infeed.shared.spec.segment import Lineage
from infeed.v1 import stream_pb2
from infeed.wire.received import StreamContract
from infeed.wire.shared_memory import MAX_BLOCKS, unsupported

_SPARE_BLOCKS = 2
"""Blocks beyond the prefetched batches: one for the training step, one on its way back."""


@dataclass(frozen=True)
class FeedPlan:
    """What all streams of one feed share, even after a reconnect."""

    spec: PipelineSpec
    options: FeedOptions
    contract: StreamContract
    shard_plan: ShardPlan
    course: Course
    """Where the run's steps lie."""
    feed_id: str
    """The feed's id, the same in all its streams."""

    @property
    def lineage(self) -> Lineage:
        """The segments of an amended run; empty if the run was never amended."""
        return self.options.cursor.segments if self.options.cursor else ()

    @property
    def finish_transforms(self) -> tuple[FinishTransform, ...]:
        """The finish transforms that run in the trainer, before a batch is delivered."""
        return self.spec.finish_transforms if self.options.finish == "trainer" else ()

    @property
    def pending_transforms(self) -> tuple[FinishTransform, ...]:
        """The finish transforms left to the consumer of the feed."""
        return self.spec.finish_transforms if self.options.finish == "none" else ()

    @property
    def element_spec(self) -> Spec:
        """The fields of the batches that are delivered."""
        return self.spec.wire_spec if self.pending_transforms else self.spec.element_spec

    @property
    def empty(self) -> Mapping[str, float]:
        """Nonzero values of fields in empty slots."""
        return self.options.empty or {}

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps in an epoch, as in `Feed.steps_per_epoch`."""
        if (count := self.spec.sample_count) is None:
            return None
        epochs, plan = self.options.epochs or 1, self.shard_plan
        padded = bool(self.options.epochs) and plan.remainder == "pad"
        steps, rest = divmod(epochs * count, plan.global_stride)
        return max(1, (steps + (padded and rest > 0)) // epochs)

    def length(self) -> int:
        """Returns the number of steps; raises `TypeError` if they are endless or unknown."""
        if (steps := self.shard_plan.steps) is not None:
            return steps
        reason = "the number of samples of its dataset is unknown until it has been read"
        if not self.contract.opening.epochs:
            reason = "it is endless; connect with epochs=1 or more for a finite feed"
        raise TypeError(f"the feed of {self.spec.name!r} has no len(): {reason}")

    def cursor_at(self, position: int) -> Cursor:
        """Returns the cursor at a position of the run. Raises `InvalidRequestError` if the feed
        reads steps again."""
        if self.options.steps is not None:
            raise InvalidRequestError(
                f"a feed of steps {self.options.steps} of {self.spec.name!r} has no state: "
                "reading steps again does not advance the run; to continue from one of them, "
                "connect with a state that the run saved, without steps"
            )
        spec, lineage = self.spec, self.lineage
        resumable = not position or spec.guarantee.can_resume
        return Cursor(
            spec.name,
            spec.fingerprint,
            self.contract.seed,
            position,
            resumable=resumable,
            segments=lineage,
            batch_size=self.contract.batch_size,
            world_size=self.shard_plan.shard.world_size,
            course=self.course,
        )

    @property
    def end_unknown(self) -> bool:
        """Whether the feed is finite and only the server can find its end."""
        return bool(self.contract.opening.epochs) and self.shard_plan.position_count is None

    def contract_with(self, server: str) -> StreamContract:
        """Returns the contract of a stream to a server, with the options of its connection."""
        opening = stream_pb2.StreamOpen()
        opening.CopyFrom(self.contract.opening)
        asked = self.options.checksum
        is_protected = is_unix(server) or self.options.tls not in (None, False)
        if asked == "off":
            opening.checksum = stream_pb2.CHECKSUM_OFF
        elif asked == "auto" and is_protected:
            opening.checksum = stream_pb2.CHECKSUM_AUTO
        if is_unix(server) and not self.shared_memory_refusal:
            opening.blocks = min(MAX_BLOCKS, self.window().depth + _SPARE_BLOCKS)
        return replace(self.contract, opening=opening)

    @property
    def multi_server(self) -> bool:
        """Whether several streams may serve at once: their batches must be identical."""
        return self.spec.guarantee.has_random_access

    def connections_to(self, server: str) -> int:
        """Returns the number of connections to a server; a Unix socket needs no second one."""
        return 1 if is_unix(server) or not self.multi_server else self.options.connections

    @property
    def shared_memory_refusal(self) -> str:
        """Why batches over a Unix socket cannot be in shared memory; empty if they can."""
        if not self.options.shared_memory:
            return "shared_memory=False"
        if self.contract.payload_bytes is None:
            return "byte strings make the batches' sizes vary"
        return unsupported()

    def window(self) -> PrefetchWindow:
        """Returns the feed's prefetch window at its beginning."""
        return PrefetchWindow(
            self.options.prefetch_bytes,
            self.contract.payload_bytes,
            self.options.prefetch_batches or MAX_BATCHES,
        )

    def request(self, step: int) -> stream_pb2.BatchRequest:
        start, count = self.shard_plan.batch_range(step)
        batch = stream_pb2.BatchRequest(request_id=step, start=start, count=count)
        if self.end_unknown:
            batch.min_position_count = self.shard_plan.min_position_count(step)
        if self.requests_step_end:
            batch.step_end = self.shard_plan.step_end(step)
        return batch

    @property
    def requests_step_end(self) -> bool:
        """Whether servers should report that the data ends within a batch's step, so that any rank
        can save the exact cursor after it. With remainder "drop" every step is full."""
        padded = self.end_unknown and self.shard_plan.remainder == "pad"
        return padded and self.spec.guarantee.can_resume
