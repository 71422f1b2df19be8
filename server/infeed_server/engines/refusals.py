"""What a sequential pipeline cannot do, said to the trainer that asked for it."""

from __future__ import annotations

from infeed.errors import CursorError, InvalidRequestError, ServerUnavailableError
from infeed.spec import PipelineSpec
from infeed_server.engines.base import Trainer


def cannot_continue(pipeline: PipelineSpec, trainer: Trainer, start: int) -> CursorError:
    why = "its dataset is not deterministic"
    remedy = "make the dataset deterministic (seeds, options.deterministic)"
    if pipeline.engine == "tf_data_service":
        why = "TensorFlow's data service gives its batches in no order"
        remedy = "take the local engine, which continues anywhere"
    return CursorError(
        f"{pipeline.name!r} cannot continue at position {start} for rank {trainer.rank} of "
        f"{trainer.world_size}: {why}, and the reading that this feed began is gone, because the "
        "server restarted, the feed changed servers, or its rank fell too far behind the others. "
        f"Another reading would repeat samples; start without a cursor, or {remedy}",
        pipeline=pipeline.name,
        position=start,
    )


def not_all_came(
    pipeline: str, world_size: int, missing: list[int], seconds: float
) -> InvalidRequestError:
    return InvalidRequestError(
        f"{pipeline!r} has no order, so all {world_size} ranks share one reading of it; "
        f"{len(missing)} of them, such as rank {missing[0]}, did not come to this server within "
        f"{seconds:g} s: start all ranks, with one server as their target",
        pipeline=pipeline,
        missing=len(missing),
    )


def step_too_large(pipeline: str, world_size: int, most_bytes: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"a step of {world_size} ranks of {pipeline!r} takes more than {most_bytes >> 20} MiB, "
        "which would be kept to find out whether the data, of unknown length, ends inside of it: "
        'take smaller batches, remainder="pad" or no epochs',
        pipeline=pipeline,
    )


def too_many_jobs(pipeline: str, count: int) -> ServerUnavailableError:
    return ServerUnavailableError(
        f"of {pipeline!r} {count} jobs read at different places already, and each reads all of it "
        "by itself: ask another server, or wait until one ends",
        pipeline=pipeline,
    )


__all__ = ["cannot_continue", "not_all_came", "step_too_large", "too_many_jobs"]
