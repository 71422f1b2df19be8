"""What a feed is to deliver: the user's options, checked against the pipeline."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import get_args

from infeed.assembly import Expected
from infeed.cursor import Cursor, Plan, Shard
from infeed.errors import InvalidRequestError
from infeed.registered import MAX_JOB_NAME
from infeed.sense import check
from infeed.spec import MAX_BATCH_SIZE, FinishPlacement, FinishTransform, PipelineSpec, Remainder
from infeed.v1 import stream_pb2


@dataclass(frozen=True)
class Job:
    """All that a stream of batches needs to know; the same over every reconnect."""

    pipeline: PipelineSpec
    open: stream_pb2.StreamOpen
    expected: Expected
    plan: Plan
    transforms: tuple[FinishTransform, ...]
    """The finish transforms that run here."""
    prefetch_bytes: int
    reconnect_timeout: float
    """Seconds."""

    @property
    def end_unknown(self) -> bool:
        """Whether only the server will find where the data ends."""
        return bool(self.open.epochs) and self.plan.total is None

    @property
    def step_end_asked(self) -> bool:
        """Whether servers are to say with a batch whether the data ends inside its step: for a
        cursor that any rank can save right behind it. With remainder "drop" a step is whole."""
        padded = self.end_unknown and self.plan.remainder == "pad"
        return padded and self.pipeline.guarantee.resume != "none"


def new_job(
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
) -> Job:
    """The job of one rank.

    Raises `InvalidRequestError`, `CursorError`, and `ProtocolError` where the pipeline itself
    makes no sense.
    """
    check(spec, spec.batch_size if batch_size is None else batch_size)
    if seed is None:
        seed = spec.seed if cursor is None else cursor.seed
    if cursor is not None:
        cursor.check(spec, seed)
    slots = _batch_size(spec, batch_size)
    known_end = spec.sample_count is not None and epochs is not None
    plan = Plan(
        base=0 if cursor is None else cursor.position,
        shard=shard,
        stride=spec.stride(slots),
        total=(spec.sample_count or 0) * (epochs or 0) if known_end else None,
        remainder=remainder or spec.remainder,
    )
    _check_plan(spec, plan, slots)
    on_server = finish == "server"
    return Job(
        pipeline=spec,
        open=stream_pb2.StreamOpen(
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
            remainder=f"REMAINDER_{plan.remainder.upper()}",
        ),
        expected=Expected(
            fingerprint=spec.fingerprint,
            spec=spec.element_spec if on_server else spec.wire_spec,
            batch_size=slots,
            stride=plan.stride,
            seed=seed,
        ),
        plan=plan,
        transforms=() if on_server else spec.finish_transforms,
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
    """What can be told wrong before a server is asked. Raises `InvalidRequestError`."""
    if batch_size is not None and not 1 <= batch_size <= MAX_BATCH_SIZE:
        raise InvalidRequestError(
            f"batch_size must be from 1 to {MAX_BATCH_SIZE}, not {batch_size}",
            batch_size=batch_size,
        )
    if epochs is not None and epochs < 1:
        raise InvalidRequestError(
            f"epochs must be at least 1, or None for endless, not {epochs}", epochs=epochs
        )
    if seed is not None and not 0 <= seed < 1 << 63:
        raise InvalidRequestError(f"seed must be from 0 to 2^63 - 1, not {seed}", seed=seed)
    if remainder is not None and remainder not in get_args(Remainder):
        raise InvalidRequestError(f'remainder must be "drop" or "pad", not {remainder!r}')
    if finish not in get_args(FinishPlacement):
        raise InvalidRequestError(f'finish must be "trainer" or "server", not {finish!r}')
    if job_name is not None and not 1 <= len(job_name) <= MAX_JOB_NAME:
        raise InvalidRequestError(
            f"job_name must have from 1 to {MAX_JOB_NAME} characters, not {len(job_name)}"
        )
    if prefetch_bytes < 0:
        raise InvalidRequestError(f"prefetch_bytes must be at least 0, not {prefetch_bytes}")


def _batch_size(spec: PipelineSpec, asked: int | None) -> int:
    if asked is None or asked == spec.batch_size:
        return spec.batch_size
    if spec.batch_stride:
        raise InvalidRequestError(
            f"pipeline {spec.name!r} delivers the batches of {spec.batch_size} that its data set "
            f"makes; batch_size {asked} cannot be had",
            batch_size=asked,
        )
    return asked


def _check_plan(spec: PipelineSpec, plan: Plan, batch_size: int) -> None:
    if spec.sample_count is not None and plan.stride > spec.sample_count:
        raise InvalidRequestError(
            f"batch_size {batch_size} is larger than the data set: pipeline {spec.name!r} has "
            f"{spec.sample_count} samples",
            batch_size=batch_size,
            sample_count=spec.sample_count,
        )
    if not plan.base and plan.steps == 0:
        raise InvalidRequestError(
            f"not one step fits: {plan.shard.world_size} ranks take {plan.global_stride} samples "
            f'in a step and there are {plan.total} in all; take smaller batches or remainder="pad"',
            global_stride=plan.global_stride,
            total=plan.total,
        )


__all__ = ["Job", "check_options", "new_job"]
