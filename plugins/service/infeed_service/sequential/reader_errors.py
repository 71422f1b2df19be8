"""The errors that end a read for its data, or for what its ranks do."""

from __future__ import annotations

from infeed.shared.errors import InvalidRequestError, SourceError
from infeed_service.sequential.ranks import RankTracker


def no_repetition(pipeline: str, position: int) -> SourceError:
    return SourceError(
        f"the data of {pipeline!r} ends at position {position}, and its engine does not repeat it "
        "for a read without a number of epochs: give epochs to the feed, or let the engine repeat "
        "it where key.epochs is 0",
        pipeline=pipeline,
        position=position,
    )


def missing_ranks(pipeline: str, ranks: RankTracker, seconds: float) -> InvalidRequestError:
    missing = ranks.missing
    return InvalidRequestError(
        f"{pipeline!r} has no order, so all {ranks.world_size} ranks must share one read of it; "
        f"{len(missing)} of them, such as rank {missing[0]}, did not connect to this server within "
        f"{seconds:g} s: start all ranks, with one server as their target",
        pipeline=pipeline,
        missing=len(missing),
    )


def step_too_large(pipeline: str, world_size: int, max_bytes: int) -> InvalidRequestError:
    limit = f"{max_bytes >> 20} MiB"
    return InvalidRequestError(
        f"a step of {world_size} ranks of {pipeline!r} takes more than {limit}, the maximum that "
        "is kept to find out whether the data, of unknown length, ends inside of "
        'the step: use smaller batches, remainder="pad" or no epochs',
        pipeline=pipeline,
    )
