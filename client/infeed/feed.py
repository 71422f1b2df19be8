"""Feed: iterator over the batches of one rank."""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from infeed.batch import Batch
from infeed.cursor import Cursor, Shard
from infeed.errors import FeedClosedError, StallError
from infeed.http2.tls_config import TLS
from infeed.prefetch.feed_item import EndOfFeed
from infeed.prefetch.feed_plan import FeedPlan, check_options, plan_feed
from infeed.prefetch.prefetcher import Prefetcher
from infeed.prefetch.ready_batches import ReadyItem
from infeed.rpc.channel import open_transport
from infeed.rpc.credentials import Token
from infeed.spec import FinishPlacement, Guarantee, PipelineSpec, Remainder, Spec
from infeed.stats import Stats, StatsRecorder
from infeed.transport import Transport

log = logging.getLogger(__name__)

PREFETCH_BYTES = 256 << 20
"""Default bound on the bytes of prefetched batches."""

STALL_WARNING_INTERVAL_SECONDS = 20.0
"""Wait for a batch after which a warning is logged; doubles with each further warning."""


def connect(
    target: str,
    pipeline: str,
    *,
    batch_size: int | None = None,
    shard: Shard | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    remainder: Remainder | None = None,
    state: Mapping[str, Any] | None = None,
    finish: FinishPlacement = "trainer",
    job_name: str | None = None,
    prefetch_bytes: int = PREFETCH_BYTES,
    timeout: float = 20.0,
    reconnect_timeout: float = 60.0,
    token: Token | None = None,
    tls: TLS | bool | None = None,
    transport: Transport | None = None,
) -> Feed:
    """Opens a feed and starts to prefetch its batches.

    target             `host:port`, `dns:///host:port`, `unix:/path`, or several servers separated
                       by commas, all of which are used
    pipeline           name of the pipeline; the error for an unknown name lists the known ones
    batch_size         slots of each batch of this rank; None: the pipeline's. A batch larger than
                       the pipeline's may have up to 1 GiB; byte strings count as in the pipeline's
                       first batch
    shard              rank and world size, an `infeed.Shard`; None: a single trainer
    seed               seed of order and augmentation, 0 to 2^63 - 1; None: the cursor's, else the
                       pipeline's
    epochs             number of epochs; None: endless
    remainder          `"drop"` or `"pad"` the samples at the end of the last epoch that do not
                       fill a batch on every rank; None: the pipeline's
    state              the cursor to resume from, a result of `Feed.state()`
    finish             where the finish transforms run; `"server"` runs them in the server, which
                       makes the batches larger
    job_name           for a pipeline on TensorFlow's data service: the job to join, whose samples
                       are split among its trainers; None: a job of this feed alone
    prefetch_bytes     bound on the prefetched batches; at least two batches are prefetched
    timeout            seconds to wait for a server that is starting
    reconnect_timeout  seconds to wait for a lost server before the feed fails
    token              authenticates this trainer: a string, or a function that returns one for
                       each call; sent unencrypted only to this machine, unless `tls` is False
    tls                `infeed.TLS(...)`, or True for the system's authorities; None: no encryption
    transport          replaces gRPC, for example with a fake: `infeed.testing.FakeTransport`

    Raises `ServerUnavailableError`, `PipelineNotFoundError` (lists the available ones),
    `InvalidRequestError`, `ConfigError`, `AuthenticationError`, `PermissionDeniedError` and
    `CursorError`.
    """
    check_options(batch_size, seed, epochs, remainder, finish, job_name, prefetch_bytes)
    cursor = None if state is None else Cursor.from_json(state)
    channel = open_transport(target, token, tls, transport)
    try:
        plan = plan_feed(
            channel.get_pipeline(pipeline, timeout),
            batch_size=batch_size,
            shard=shard or Shard(),
            seed=seed,
            epochs=epochs,
            remainder=remainder,
            cursor=cursor,
            finish=finish,
            job_name=job_name,
            prefetch_bytes=prefetch_bytes,
            reconnect_timeout=reconnect_timeout,
        )
        feed = Feed(Prefetcher(channel, plan, owns_transport=transport is None), plan)
    except BaseException:
        if transport is None:
            channel.close()
        raise
    return feed


class Feed(Iterator[Batch]):
    """Iterates over the batches of one rank, in order, each once.

    Returned by `connect`. Call `close`, or use it in `with`. A feed belongs to the process that
    opened it and raises `FeedClosedError` after a fork: start workers with `spawn` and connect in
    each.
    """

    def __init__(self, prefetcher: Prefetcher, plan: FeedPlan) -> None:
        """Starts the prefetcher."""
        self._prefetcher = prefetcher
        self._ready = prefetcher.ready
        self._spec = plan.spec
        self._plan = plan
        self._shard_plan = plan.shard_plan
        """Unlike the feed plan's, with the end of the data as soon as a delivered batch has it."""
        self._recorder = StatsRecorder()
        self._pid = os.getpid()
        self._closed = False
        self._warned_of_state = False
        # A feed that is dropped without close() must not keep its threads running. An exit of the
        # interpreter ends them anyway: stopped before it, the feed would raise an error in a daemon
        # thread that reads it.
        weakref.finalize(self, prefetcher.stop).atexit = False
        prefetcher.start()

    @property
    def spec(self) -> PipelineSpec:
        """The spec that the server sent: name, `sample_count`, `fingerprint` and more."""
        return self._spec

    @property
    def element_spec(self) -> Spec:
        """Name, data type and shape of each field of one sample, without the slots dimension."""
        return self._spec.element_spec

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of order, delivery and resume."""
        return self._spec.guarantee

    @property
    def batch_size(self) -> int:
        """Slots of every batch."""
        return self._plan.contract.batch_size

    @property
    def steps(self) -> int | None:
        """Batches from the feed's beginning to its end; None if endless or unknown."""
        return self._plan.shard_plan.steps

    @property
    def steps_left(self) -> int | None:
        """Batches that are still to be delivered; None if endless or unknown."""
        return None if self.steps is None else self.steps - self._ready.progress.steps

    @property
    def steps_per_epoch(self) -> int | None:
        """Whole steps in an epoch, over all ranks, for Keras' `fit`; None if unknown."""
        count = self._spec.sample_count
        return None if count is None else count // self._plan.shard_plan.global_stride

    @property
    def may_mask(self) -> bool:
        """Whether a batch can have empty slots."""
        # A data set whose elements are batches may end every epoch with a partial batch.
        ends = bool(self._plan.open_message.epochs) or bool(self._spec.batch_stride)
        padded = ends and self._plan.shard_plan.remainder == "pad"
        return padded or self._spec.on_error == "mask"

    def __iter__(self) -> Feed:
        return self

    def next(self, timeout: float | None = None) -> Batch:
        """Returns the next batch; raises `StopIteration` after the last, `StallError` at a timeout.

        `timeout` is in seconds. After a `StallError` call again: nothing is lost. Raises also
        `FeedClosedError`, and the error that ended the feed, after all batches before it.

        An exception of a signal handler, such as `KeyboardInterrupt`, neither loses nor counts the
        batch: the next call returns it.
        """
        requested_at = time.monotonic()
        while True:
            ready = self._wait_for_item(requested_at, timeout)
            item = ready.item
            if isinstance(item, BaseException):
                raise item
            if item.position_count is not None:
                self._shard_plan = replace(self._shard_plan, position_count=item.position_count)
            if isinstance(item, EndOfFeed):
                raise StopIteration
            self._recorder.record(requested_at, time.monotonic(), ready.after)
            batch, items, number = item.batch, self._ready.items, ready.before.steps
            self._ready.announce(number)
            try:
                # Takes the batch. No call may follow it: see ready_batches.py.
                del items[number]
                return batch
            except KeyError:  # another thread has taken it
                pass

    __next__ = next  # noqa: A003 - this class's `next`, without a frame between it and the loop

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last delivered batch, a dict that JSON can encode.

        Save it with the model. `connect(..., state=...)` resumes there, with any world size. With
        a `guarantee` that has no resume, it is marked with `"resumable": False`, and the first one
        logs a warning.
        """
        spec = self._spec
        position = self._shard_plan.position_after(self._ready.progress.steps)
        resumable = not position or spec.guarantee.resume != "none"
        if not resumable and not self._warned_of_state:
            self._warned_of_state = True
            log.warning(
                "%s guarantees no order, so a run cannot resume from this state: after a restart "
                "of the trainer, connect without state",
                spec.name,
            )
        seed = self._plan.contract.seed
        cursor = Cursor(spec.name, spec.fingerprint, seed, position, resumable=resumable)
        return cursor.to_json()

    def stats(self) -> Stats:
        """Returns the statistics so far: waits and rates; print them for a summary."""
        return self._recorder.stats(self._ready.progress, self._prefetcher.counters)

    def close(self) -> None:
        """Ends the feed within two seconds, even if another thread waits in `next`."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        self._prefetcher.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shard = self._plan.shard_plan.shard
        return (
            f"Feed({self._spec.name!r} at {self._prefetcher.target}, batch_size={self.batch_size}, "
            f"rank {shard.rank} of {shard.world_size}, {self._ready.progress.steps} delivered)"
        )

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise FeedClosedError(
                f"the feed was opened by process {self._pid} and cannot be used in process "
                f'{os.getpid()} after a fork; start workers with the method "spawn" and connect in '
                "each of them"
            )
        if self._closed:
            raise FeedClosedError(f"the feed of {self._spec.name!r} was closed")

    def _wait_for_item(self, requested_at: float, timeout: float | None) -> ReadyItem:
        """Waits for the next item; logs a warning about each long wait without a timeout."""
        warn_at = requested_at + STALL_WARNING_INTERVAL_SECONDS
        deadline = math.inf if timeout is None else requested_at + timeout
        while True:
            self._check_open()
            now = time.monotonic()
            if (item := self._ready.first(min(warn_at, deadline) - now)) is not None:
                return item
            now = time.monotonic()
            if now >= deadline:
                raise self._stall_error(timeout or 0.0)
            if now >= warn_at:
                log.warning("%s; still waiting", self._stall_error(warn_at - requested_at))
                warn_at += warn_at - requested_at

    def _stall_error(self, seconds: float) -> StallError:
        server, reason = self._prefetcher.blocking_server()
        start, _ = self._plan.shard_plan.batch_range(self._ready.progress.steps)
        return StallError(
            f"{server}: position {start} of {self._spec.name!r}: no batch within {seconds:g} s; "
            f"{reason}",
            server=server,
            position=start,
            seconds=f"{seconds:g}",
        )
