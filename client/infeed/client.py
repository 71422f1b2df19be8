"""The client's entry point: opens a feed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from infeed.feed import Feed
from infeed.http2.target import parse_target
from infeed.prefetch.feed_options import (
    OPTION_NAMES,
    PREFETCH_BYTES,
    ConnectOptions,
    FeedOptions,
    document_options,
)
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.prefetcher import Prefetcher
from infeed.prefetch.served_plan import served_plan
from infeed.ranks import warn_of_equal_batches
from infeed.rpc.channel import open_transport
from infeed.shared.arguments import check_text, did_you_mean
from infeed.shared.errors import MissingExtraError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.shared.telemetry.batch_span import BatchTracer


def check_options(options: Mapping[str, Any], adapter: Callable[..., object]) -> FeedOptions:
    """Checks the options of `connect` and returns them, even where an adapter connects later.
    Raises `TypeError` for an unknown name, and `InvalidRequestError` or `CursorError` for a bad
    value. `adapter` is the function or `__init__` that the user called."""
    for name in options.keys() - set(OPTION_NAMES):
        parameters = inspect.signature(adapter).parameters
        known = dict.fromkeys([*parameters, *OPTION_NAMES])
        own = [name for name, item in parameters.items() if item.kind is item.KEYWORD_ONLY]
        listed = dict.fromkeys([*own, *OPTION_NAMES])
        raise TypeError(
            f"{adapter.__qualname__.removesuffix('.__init__')} has no option "
            f"{name!r}{did_you_mean(name, known)}; options: {', '.join(listed)}"
        )
    return FeedOptions(**options)


def check_target(target: object, options: ConnectOptions) -> None:
    """Raises `InvalidRequestError` for an invalid target, even where an adapter connects later."""
    check_text("target", target, '"127.0.0.1:7470"')
    if options.get("transport") is None:
        parse_target(str(target))


@document_options
def connect(target: str, pipeline: str, **options: Unpack[ConnectOptions]) -> Feed:
    """Opens a feed and starts prefetching its batches.

    target             `host:port`, `dns:///host:port`, `unix:/path`, or several servers separated
                       by commas, all of which are used
    pipeline           name of the pipeline; the error for an unknown name lists the known ones
    OPTIONS
    """
    return _open_feed(target, pipeline, check_options(options, connect))


def _open_feed(target: str, pipeline: str, options: FeedOptions) -> Feed:
    check_text("pipeline", pipeline, '"photos"')
    if options.shard is None:
        warn_of_equal_batches(
            f"the feed of {pipeline!r} has no shard",
            "shard=infeed.Shard(rank, world_size), or infeed.Shard() to read all in each",
        )
    transport = open_transport(target, options.token, options.tls, options.transport)
    try:
        plan = served_plan(transport, pipeline, options)
        prefetcher = Prefetcher(transport, plan, _open_tracer(plan))
        return Feed(prefetcher, plan, lambda: _open_feed(target, pipeline, options))
    except BaseException:
        if options.transport is None:
            transport.close()
        raise


def fetch_plan(target: str, pipeline: str, options: FeedOptions) -> FeedPlan:
    """Returns the plan of the feed that `connect` would open with these options, without opening a
    stream. Raises what `connect` raises."""
    check_text("pipeline", pipeline, '"photos"')
    transport = open_transport(target, options.token, options.tls, options.transport)
    try:
        return served_plan(transport, pipeline, options)
    finally:
        if options.transport is None:
            transport.close()


def _open_tracer(plan: FeedPlan) -> BatchTracer | None:
    if plan.options.tracer_provider is None:
        return None
    try:
        from infeed.shared.telemetry.batch_span import BatchTracer  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError(
            "tracer_provider needs OpenTelemetry: pip install 'infeed[otel]'"
        ) from None
    opening = plan.contract.opening
    names = {"pipeline": opening.pipeline, "feed": plan.feed_id}
    ranks = {"rank": opening.rank, "world_size": opening.world_size}
    return BatchTracer(plan.options.tracer_provider, {**names, **ranks})


__all__ = [
    "PREFETCH_BYTES",
    "ConnectOptions",
    "check_options",
    "check_target",
    "connect",
    "fetch_plan",
]
