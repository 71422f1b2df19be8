"""Errors of sequential pipelines, raised at the trainer's request."""

from __future__ import annotations

import copy

from infeed.shared.errors import CursorError, InvalidRequestError, ServerUnavailableError
from infeed.shared.spec import PipelineSpec
from infeed_server.engines.base import Trainer


def repeated(error: Exception) -> Exception:
    """Returns a copy of a stored error, which is its cause, for one of several callers.

    Raising the stored error itself would add the frames of each caller to its traceback, while
    other threads use it.
    """
    try:
        again = copy.copy(error)
    except Exception:  # noqa: BLE001 - not every class of errors supports copies
        again = RuntimeError(f"{type(error).__name__}: {error}")
    again.__cause__ = error
    return again


def cannot_continue(pipeline: PipelineSpec, trainer: Trainer, start: int) -> CursorError:
    return CursorError(
        f"{pipeline.name!r} cannot continue at position {start} for rank {trainer.rank} of "
        f"{trainer.world_size}: its batches have no order, and the read that this feed "
        "began no longer exists, because the server restarted, the feed changed servers, or its "
        "rank fell too far behind the others. A new read would repeat samples; start without a "
        "cursor, or make the dataset deterministic (seeds, options.deterministic) on the local "
        "engine",
        pipeline=pipeline.name,
        position=start,
    )


def missing_ranks(
    pipeline: str, world_size: int, missing: list[int], seconds: float
) -> InvalidRequestError:
    return InvalidRequestError(
        f"{pipeline!r} has no order, so all {world_size} ranks must share one read of it; "
        f"{len(missing)} of them, such as rank {missing[0]}, did not connect to this server within "
        f"{seconds:g} s: start all ranks, with one server as their target",
        pipeline=pipeline,
        missing=len(missing),
    )


def step_too_large(pipeline: str, world_size: int, limit_bytes: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"a step of {world_size} ranks of {pipeline!r} takes more than {limit_bytes >> 20} MiB, "
        "the maximum that is kept to find out whether the data, of unknown length, ends inside of "
        'the step: use smaller batches, remainder="pad" or no epochs',
        pipeline=pipeline,
    )


def too_many_jobs(pipeline: str, count: int) -> ServerUnavailableError:
    return ServerUnavailableError(
        f"{pipeline!r} has {count} jobs that read at different positions, the maximum, and each "
        "reads the whole dataset: use another server, or wait until a job ends",
        pipeline=pipeline,
    )
