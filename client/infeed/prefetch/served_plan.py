"""Plan of a feed, made from a server's spec."""

from __future__ import annotations

import uuid
from dataclasses import replace

from infeed.cursor import MAX_POSITION, Shard, ShardPlan, is_of_other_algorithm
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.spec_check import check_empty, validate_spec
from infeed.run import Run
from infeed.shared.arguments import MAX_INT64, check_integer
from infeed.shared.errors import FingerprintError, InvalidRequestError, PipelineNotFoundError
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.segment import Lineage, end_of_epochs, lineage_to_proto
from infeed.transport import Transport
from infeed.v1 import stream_pb2
from infeed.wire.received import StreamContract


def served_plan(transport: Transport, pipeline: str, options: FeedOptions) -> FeedPlan:
    """Returns the plan of a pipeline's feed, or of an amended run's steps. Raises what
    `infeed.connect` raises."""
    cursor = options.cursor
    if options.steps is None or cursor is None:
        return plan_feed(transport.get_pipeline(pipeline, options.timeout), options)
    run = Run.of(cursor).up_to(*options.steps)
    assert run.cursor is not None
    size, ranks = run.sizes(options.steps[0])
    options = replace(
        options,
        batch_size=options.batch_size or size,
        shard=options.shard or Shard(0, ranks or 1),
    )
    if not run.lineage:
        return plan_feed(transport.get_pipeline(pipeline, options.timeout), options)
    spec = find_pipeline(transport, pipeline, run.cursor.fingerprint, options.timeout)
    return plan_feed(spec, replace(options, state=replace(run.cursor, pipeline=spec.name)))


def find_pipeline(
    transport: Transport, name: str, fingerprint: str, timeout: float
) -> PipelineSpec:
    """Returns the pipeline with a fingerprint, under any name, trying `name` first. Raises
    `FingerprintError` if there is none."""
    served = ""
    try:
        spec = transport.get_pipeline(name, timeout)
        if spec.fingerprint == fingerprint:
            return spec
        served = f" ({name!r} has {spec.fingerprint})"
    except PipelineNotFoundError:
        pass
    remedy = "serve that definition too, under any name"
    for spec in transport.list_pipelines(timeout):
        if is_of_other_algorithm(fingerprint, spec.fingerprint):
            remedy = "an infeed with other random draws made it: use servers of that version"
        if spec.fingerprint == fingerprint:
            return transport.get_pipeline(spec.name, timeout)  # listings omit class names
    raise FingerprintError(
        f"{transport.target}: no pipeline has the fingerprint {fingerprint}, with which these "
        f"steps of the run of {name!r} were made{served}; {remedy}",
        pipeline=name,
        expected=fingerprint,
    )


def plan_feed(spec: PipelineSpec, options: FeedOptions) -> FeedPlan:
    """Returns the plan of one rank."""
    cursor, shard = options.cursor, options.shard or Shard()
    slots = options.batch_size or spec.batch_size
    validate_spec(spec, slots)
    seed = options.seed
    if seed is None:
        seed = spec.seed if cursor is None else cursor.seed
    if cursor is not None:
        cursor.check(spec, seed)
    spec.check_batch_size(slots)
    lineage = () if cursor is None else cursor.segments
    shard_plan = ShardPlan(
        base=0 if cursor is None else cursor.position,
        shard=shard,
        stride=spec.stride(slots),
        position_count=_position_count(spec, lineage or spec.lineage, options.epochs),
        remainder=options.remainder or spec.remainder,
    )
    course = shard_plan.course
    if cursor is not None:
        before = cursor.last_course(shard_plan.global_stride)
        sizes = cursor.batch_size or slots, cursor.world_size or shard.world_size
        is_same = sizes == (slots, shard.world_size)
        course = before.followed_by(course) if is_same else before.changed_to(course)
    if options.steps is not None:
        run = Run(spec.name, seed, cursor)
        shard_plan = _plan_of_steps(spec, run, options.steps, shard_plan, options.epochs)
    if not shard_plan.base and shard_plan.steps == 0:
        raise InvalidRequestError(
            f"no complete step: {shard.world_size} ranks need {shard_plan.global_stride} samples "
            f"for a step, and there are {shard_plan.position_count}; use smaller batches or "
            'remainder="pad"'
        )
    on_server = options.finish == "server"
    opening = stream_pb2.StreamOpen(
        pipeline=spec.name,
        fingerprint=spec.fingerprint,
        seed=seed,
        batch_size=slots,
        finish="FINISH_PLACEMENT_SERVER" if on_server else "FINISH_PLACEMENT_TRAINER",
        epochs=options.epochs or 0,
        rank=shard.rank,
        world_size=shard.world_size,
        job_name=options.job_name or "",
        remainder=f"REMAINDER_{shard_plan.remainder.upper()}",
        lineage=lineage_to_proto(lineage) if lineage else None,
    )
    contract = StreamContract(
        fingerprint=spec.fingerprint,
        spec=spec.element_spec if on_server else spec.wire_spec,
        batch_size=slots,
        stride=shard_plan.stride,
        seed=seed,
        opening=opening,
        parts=spec.parts,
    )
    plan = FeedPlan(spec, options, contract, shard_plan, course, uuid.uuid4().hex)
    check_empty(plan.empty, plan.element_spec, plan.pending_transforms)
    return plan


def _plan_of_steps(
    spec: PipelineSpec, run: Run, steps: tuple[int, int], plan: ShardPlan, epochs: int | None
) -> ShardPlan:
    """Returns the plan of some steps of a run. Raises `InvalidRequestError` if they cannot be read
    again."""
    problem = f"steps {steps} of pipeline {spec.name!r} cannot be read again: "
    if not spec.guarantee.can_resume:
        raise InvalidRequestError(f"{problem}it guarantees no order")
    if epochs and spec.sample_count is None:
        raise InvalidRequestError(
            f"{problem}its number of samples is unknown, so the end of {epochs} epochs is too; "
            "connect without epochs"
        )
    part = run.part_of(steps[0], plan.global_stride)
    begin, count = part.position(steps[0]), (steps[1] - steps[0]) * part.stride
    wanted, rest = divmod(count, plan.global_stride)
    if rest:
        raise InvalidRequestError(
            f"{problem}{plan.shard.world_size} ranks with batches of {plan.stride} take "
            f"{plan.global_stride} samples in a step, which do not fit into these {count}; "
            f"use the run's batch size and world size, or steps that they fit into"
        )
    ends = (begin + count, part.end, plan.position_count)
    end = min(check_integer("position", one, 0, MAX_POSITION) for one in ends if one is not None)
    found = replace(plan, base=begin, position_count=end)
    if part.pads:
        found = replace(found, remainder="pad")
    if found.steps != wanted:
        raise InvalidRequestError(
            f"{problem}with epochs={epochs} the run has {found.steps} of these {wanted} steps; use "
            "steps of the run, or connect without epochs"
        )
    return found


def _position_count(spec: PipelineSpec, lineage: Lineage, epochs: int | None) -> int | None:
    """Returns the positions of a number of epochs; None if endless or unknown."""
    if epochs is None or spec.sample_count is None:
        return None
    check_integer("epochs", epochs, 1, MAX_INT64 // max(1, spec.sample_count))
    return end_of_epochs(lineage, epochs, spec.sample_count)
