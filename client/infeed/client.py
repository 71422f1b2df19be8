"""The client's entry point: opens a feed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from infeed.cursor import Cursor, Shard
from infeed.feed import Feed
from infeed.http2.tls_config import TLS
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.feed_plan import plan_feed
from infeed.prefetch.prefetcher import Prefetcher
from infeed.ranks import warn_of_equal_batches
from infeed.rpc.channel import missing_opentelemetry, open_transport
from infeed.rpc.credentials import Token
from infeed.shared.arguments import check_seconds, check_text, did_you_mean, nearest_first
from infeed.shared.spec import FinishPlacement, Remainder
from infeed.transport import Transport

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from infeed.prefetch.feed_plan import FeedPlan
    from infeed.shared.telemetry.batch_tracer import BatchTracer

PREFETCH_BYTES = 256 << 20
"""Default bound on the bytes of prefetched batches."""


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`, which the adapters of frameworks also take."""

    batch_size: int | None
    shard: Shard | None
    seed: int | None
    epochs: int | None
    remainder: Remainder | None
    state: Mapping[str, Any] | Cursor | None
    finish: FinishPlacement
    job_name: str | None
    prefetch_bytes: int
    prefetch_batches: int | None
    timeout: float
    reconnect_timeout: float
    token: Token | None
    tls: TLS | bool | None
    transport: Transport | None
    tracer_provider: TracerProvider | None
    meter_provider: MeterProvider | None


def check_option_names(options: Mapping[str, Any], adapter: Callable[..., object]) -> None:
    """Raises `TypeError` for a name that is no option of `connect`, as calling it would: for the
    adapters that connect later.

    `adapter` is the function, or `__init__`, that was called; its own arguments are named too.
    """
    for name in options.keys() - ConnectOptions.__annotations__.keys():
        # The last parameter is `options`.
        own = [each for each in inspect.signature(adapter).parameters if each != "self"][:-1]
        known = [*own, *ConnectOptions.__annotations__]
        module = ".".join(adapter.__module__.split(".")[:2])
        raise TypeError(
            f"{module}.{adapter.__qualname__.removesuffix('.__init__')} has no option "
            f"{name!r}{did_you_mean(name, known)}; options, the most similar first: "
            f"{', '.join(nearest_first(name, known))}"
        )


def connect(
    target: str,
    pipeline: str,
    *,
    batch_size: int | None = None,
    shard: Shard | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    remainder: Remainder | None = None,
    state: Mapping[str, Any] | Cursor | None = None,
    finish: FinishPlacement = "trainer",
    job_name: str | None = None,
    prefetch_bytes: int = PREFETCH_BYTES,
    prefetch_batches: int | None = None,
    timeout: float = 20.0,
    reconnect_timeout: float = 60.0,
    token: Token | None = None,
    tls: TLS | bool | None = None,
    transport: Transport | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Feed:
    """Opens a feed and starts to prefetch its batches.

    target             `host:port`, `dns:///host:port`, `unix:/path`, or several servers separated
                       by commas, all of which are used
    pipeline           name of the pipeline; the error for an unknown name lists the known ones
    batch_size         slots of each batch of this rank; None: the pipeline's. A batch larger than
                       the pipeline's may have up to 1 GiB; byte strings count as in the pipeline's
                       first batch
    shard              rank and world size, an `infeed.Shard`; None: a single trainer, with a
                       warning where the launcher or JAX has started several processes
    seed               seed of order and augmentation, 0 to 2^63 - 1; None: the cursor's, else the
                       pipeline's
    epochs             number of epochs; None: endless
    remainder          `"drop"` or `"pad"` the samples at the end of the last epoch that do not
                       fill a batch on every rank; None: the pipeline's
    state              the cursor to resume from, a result of `Feed.state()`
    finish             where the finish transforms run; `"server"` runs them in the server, which
                       makes the batches larger; with `"none"` batches arrive as they travel, and
                       the consumer runs `Feed.pending_transforms`
    job_name           for a pipeline on TensorFlow's data service: the job to join, whose samples
                       are split among its trainers; None: a job of this feed alone
    prefetch_bytes     bound on the prefetched batches; at least two batches are prefetched
    prefetch_batches   bound on their number, 2 to 64; None: as many as `prefetch_bytes` holds
    timeout            seconds to wait for a server that is starting
    reconnect_timeout  seconds to wait for a lost server before the feed fails
    token              authenticates this trainer: a string, or a function that returns one for
                       each call; sent unencrypted only to this machine, unless `tls` is False
    tls                `infeed.TLS(...)`, or True for the system's authorities; None: no encryption
    transport          replaces gRPC, for example with a fake: `infeed.testing.FakeTransport`
    tracer_provider    OpenTelemetry's provider for spans of batches, such as
                       `opentelemetry.trace.get_tracer_provider()`; None: no batch is traced
    meter_provider     OpenTelemetry's provider for the metrics of gRPC calls; None: they are not
                       measured

    Raises `ServerUnavailableError`, `PipelineNotFoundError` (lists the available ones),
    `InvalidRequestError`, `ConfigError`, `AuthenticationError`, `PermissionDeniedError` and
    `CursorError`.
    """
    arguments = dict(locals())
    options = FeedOptions(
        batch_size=batch_size,
        shard=shard,
        seed=seed,
        epochs=epochs,
        remainder=remainder,
        finish=finish,
        job_name=job_name,
        prefetch_bytes=prefetch_bytes,
        prefetch_batches=prefetch_batches,
        reconnect_timeout=reconnect_timeout,
    )
    check_text("pipeline", pipeline, '"photos"')
    timeout = check_seconds("timeout", timeout)
    if shard is None:
        warn_of_equal_batches(
            f"the feed of {pipeline!r} has no shard",
            "shard=infeed.Shard(rank, world_size), or infeed.Shard() if each shall read all",
        )
    cursor = None if state is None else Cursor.from_json(state)
    channel = open_transport(target, token, tls, transport, meter_provider)
    try:
        spec = channel.get_pipeline(pipeline, timeout)
        plan = plan_feed(spec, cursor=cursor, **vars(options))
        tracer = None if tracer_provider is None else _open_tracer(tracer_provider, plan)
        prefetcher = Prefetcher(channel, plan, owns_transport=transport is None, tracer=tracer)
        feed = Feed(prefetcher, plan, lambda: connect(**arguments))
    except BaseException:
        if transport is None:
            channel.close()
        raise
    return feed


def _open_tracer(provider: TracerProvider, plan: FeedPlan) -> BatchTracer:
    try:
        from infeed.shared.telemetry.batch_tracer import BatchTracer  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing_opentelemetry("tracer_provider") from None
    message = plan.open_message
    attributes: dict[str, str | int] = {
        "pipeline": message.pipeline,
        "feed": message.feed_id,
        "rank": message.rank,
        "world_size": message.world_size,
    }
    return BatchTracer(provider, attributes)
