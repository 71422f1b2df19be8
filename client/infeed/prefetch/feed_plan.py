"""Feed plan: the user's options, resolved against the pipeline."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import get_args

from infeed.cursor import Cursor, Shard, ShardPlan
from infeed.errors import InvalidRequestError
from infeed.prefetch.spec_check import validate_spec
from infeed.spec import MAX_BATCH_SIZE, FinishPlacement, FinishTransform, PipelineSpec, Remainder
from infeed.spec.dataset import MAX_JOB_NAME_LENGTH
from infeed.v1 import stream_pb2
from infeed.wire.assembler import StreamContract


@dataclass(frozen=True)
class FeedPlan:
    """What every stream of one feed has in common, also after a reconnect."""

    spec: PipelineSpec
    open_message: stream_pb2.StreamOpen
    contract: StreamContract
    shard_plan: ShardPlan
    finish_transforms: tuple[FinishTransform, ...]
    """The finish transforms that run in the trainer."""
    prefetch_bytes: int
    reconnect_timeout: float
    """Seconds without any server after which the feed fails."""

    @property
    def end_unknown(self) -> bool:
        """Whether the feed is finite and only the server can find its end."""
        return bool(self.open_message.epochs) and self.shard_plan.position_count is None

    @property
    def requests_step_end(self) -> bool:
        """Whether servers should report with a batch that the data ends inside its step.

        Any rank can then save the exact cursor right after that batch. With remainder "drop" every
        step is full.
        """
        padded = self.end_unknown and self.shard_plan.remainder == "pad"
        return padded and self.spec.guarantee.resume != "none"


def plan_feed(
    spec: PipelineSpec,
    *,
    batch_size: int | None,
    shard: Shard,
    seed: int | None,
    epochs: int | None,
    remainder: Remainder | None,
    cursor: Cursor | None,
    finish: FinishPlacement,
    job_name: str | None,
    prefetch_bytes: int,
    reconnect_timeout: float,
) -> FeedPlan:
    """Returns the plan of one rank.

    Raises `InvalidRequestError`, `CursorError`, and `ProtocolError` if the spec itself is invalid.
    """
    slots = spec.batch_size if batch_size is None else batch_size
    validate_spec(spec, slots)
    if seed is None:
        seed = spec.seed if cursor is None else cursor.seed
    if cursor is not None:
        cursor.check(spec, seed)
    spec.check_batch_size(slots)
    known_end = spec.sample_count is not None and epochs is not None
    shard_plan = ShardPlan(
        base=0 if cursor is None else cursor.position,
        shard=shard,
        stride=spec.stride(slots),
        position_count=(spec.sample_count or 0) * (epochs or 0) if known_end else None,
        remainder=remainder or spec.remainder,
    )
    _check_steps(shard_plan)
    on_server = finish == "server"
    return FeedPlan(
        spec=spec,
        open_message=stream_pb2.StreamOpen(
            pipeline=spec.name,
            fingerprint=spec.fingerprint,
            seed=seed,
            batch_size=slots,
            finish=(
                stream_pb2.FINISH_PLACEMENT_SERVER
                if on_server
                else stream_pb2.FINISH_PLACEMENT_TRAINER
            ),
            epochs=epochs or 0,
            rank=shard.rank,
            world_size=shard.world_size,
            feed_id=uuid.uuid4().hex,
            job_name=job_name or "",
            remainder=f"REMAINDER_{shard_plan.remainder.upper()}",
        ),
        contract=StreamContract(
            fingerprint=spec.fingerprint,
            spec=spec.element_spec if on_server else spec.wire_spec,
            batch_size=slots,
            stride=shard_plan.stride,
            seed=seed,
        ),
        shard_plan=shard_plan,
        finish_transforms=() if on_server else spec.finish_transforms,
        prefetch_bytes=prefetch_bytes,
        reconnect_timeout=reconnect_timeout,
    )


def check_options(
    batch_size: int | None,
    seed: int | None,
    epochs: int | None,
    remainder: str | None,
    finish: str,
    job_name: str | None,
    prefetch_bytes: int,
) -> None:
    """Raises `InvalidRequestError` for options that are invalid for every pipeline."""
    if batch_size is not None and not 1 <= batch_size <= MAX_BATCH_SIZE:
        raise InvalidRequestError(
            f"batch_size must be from 1 to {MAX_BATCH_SIZE}, not {batch_size}",
            batch_size=batch_size,
        )
    if epochs is not None and epochs < 1:
        raise InvalidRequestError(
            f"epochs must be at least 1, or None for an endless feed, not {epochs}", epochs=epochs
        )
    if seed is not None and not 0 <= seed < 1 << 63:
        raise InvalidRequestError(f"seed must be from 0 to 2^63 - 1, not {seed}", seed=seed)
    if remainder is not None and remainder not in get_args(Remainder):
        raise InvalidRequestError(f'remainder must be "drop" or "pad", not {remainder!r}')
    if finish not in get_args(FinishPlacement):
        raise InvalidRequestError(f'finish must be "trainer" or "server", not {finish!r}')
    if job_name is not None and not 1 <= len(job_name) <= MAX_JOB_NAME_LENGTH:
        raise InvalidRequestError(
            f"job_name must have from 1 to {MAX_JOB_NAME_LENGTH} characters, not {len(job_name)}"
        )
    if prefetch_bytes < 0:
        raise InvalidRequestError(f"prefetch_bytes must be at least 0, not {prefetch_bytes}")


def _check_steps(plan: ShardPlan) -> None:
    if not plan.base and plan.steps == 0:
        raise InvalidRequestError(
            f"no complete step: {plan.shard.world_size} ranks need {plan.global_stride} samples "
            f"for a step, and there are {plan.position_count}; use smaller batches or "
            'remainder="pad"',
            global_stride=plan.global_stride,
            total=plan.position_count,
        )
