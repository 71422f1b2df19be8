"""Errors that end a read because of its data or its ranks."""

from __future__ import annotations

from infeed.shared.errors import InvalidRequestError, SourceError
from infeed_service.sequential.ranks import RankTracker


def no_repetition(pipeline: str, position: int) -> SourceError:
    return SourceError(
        f"the data of {pipeline!r} ends at position {position}, but a read without epochs is "
        "endless and its engine does not repeat the data; give epochs to the feed, or let the "
        "engine repeat the data if key.epochs is 0",
        pipeline=pipeline,
        position=position,
    )


def missing_ranks(pipeline: str, ranks: RankTracker, seconds: float) -> InvalidRequestError:
    missing = ranks.missing
    return InvalidRequestError(
        f"{pipeline!r} has no order, so all {ranks.world_size} ranks must share one read, but "
        f"{len(missing)} of them, such as rank {missing[0]}, did not connect to this server within "
        f"{seconds:g} s; start all ranks, with one server as their target",
        pipeline=pipeline,
        missing=len(missing),
    )


def step_too_large(pipeline: str, world_size: int, max_bytes: int) -> InvalidRequestError:
    limit = f"{max_bytes >> 20} MiB"
    return InvalidRequestError(
        f"a step of {world_size} ranks of {pipeline!r} takes more than {limit}, the maximum kept "
        "to find out whether data of unknown length ends within the step; use smaller batches, "
        'remainder="pad" or no epochs',
        pipeline=pipeline,
    )
