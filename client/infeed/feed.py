"""A trainer's open connection to one pipeline."""

from __future__ import annotations

import _thread
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from infeed.assembly import Received
from infeed.batch import Batch
from infeed.credentials import Credentials, Token
from infeed.cursor import Cursor, Shard
from infeed.errors import FeedClosedError, InvalidRequestError, StallError
from infeed.job import Job, check_options, new_job
from infeed.pool import End
from infeed.spec import FinishPlacement, Guarantee, PipelineSpec, Remainder, Spec
from infeed.stats import Meter, Stats
from infeed.stream import BatchStream
from infeed.tls import TLS
from infeed.transport import GrpcTransport, Transport

log = logging.getLogger(__name__)

PREFETCH_BYTES = 256 << 20

STALL_SECONDS = 20.0
"""After which a trainer that waits without a timeout reads in its log whom it waits for."""


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
    """Opens a feed and starts to fetch its first batches.

    target             "host:port", "dns:///host:port", "unix:/path", or several with commas, all of
                       which are used
    batch_size         slots per rank; the pipeline's when None
    shard              this trainer's rank and the world size; alone when None
    seed               of order and augmentation; the cursor's or the pipeline's when None
    epochs             None: endless
    remainder          "drop" or "pad" the samples that fill no batch on every rank; the
                       pipeline's when None
    state              what `Feed.state()` gave, to go on from there
    finish             where the finish transforms run, "trainer" or "server"
    job_name           of a pipeline on TensorFlow's data service: the job to take part in, whose
                       samples are shared out among all that do; one of its own when None
    prefetch_bytes     the bound on what is fetched ahead; two batches are, whatever they weigh
    timeout            seconds to wait for a server that is not up yet
    reconnect_timeout  seconds to wait for a lost server before the feed fails
    token              shows the server who asks: text, or a function that gives it, asked for each
                       call; travels in the clear only to this machine, unless tls is False
    tls                an `infeed.TLS`, or True for the system's authorities; in the clear when None
    transport          instead of gRPC, such as `infeed.testing.FakeTransport`

    Raises `ServerUnavailableError`, `PipelineNotFoundError` (lists the known ones),
    `InvalidRequestError`, `ConfigError`, `AuthenticationError`, `PermissionDeniedError` and
    `CursorError`.
    """
    check_options(batch_size, seed, epochs, remainder, finish, job_name, prefetch_bytes)
    cursor = None if state is None else Cursor.from_json(state)
    credentials = Credentials(token, tls)
    if transport is not None and credentials != Credentials():
        raise InvalidRequestError("token and tls are the transport's; give them to that")
    link = transport or GrpcTransport(target, credentials)
    try:
        job = new_job(
            link.get_pipeline(pipeline, timeout),
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
        return Feed(link, job, owns_transport=transport is None)
    except BaseException:
        if transport is None:
            link.close()
        raise


class Feed(Iterator[Batch]):
    """The batches of one rank, in order, once. Made by `connect`; close it, or use it in `with`.

    A feed belongs to the process that opened it. After a fork it raises `FeedClosedError`:
    start workers with `spawn` and connect in each.
    """

    def __init__(self, transport: Transport, job: Job, *, owns_transport: bool) -> None:
        self._transport = transport
        self._owns_transport = owns_transport
        self._spec = job.pipeline
        self._job = job
        self._found = job.plan
        """The plan, with the end of the data once a delivered batch has told it."""
        self._meter = Meter()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._stream = BatchStream(transport, job)
        # A feed that is dropped without close() must not read on for ever.
        self._abandon = weakref.finalize(self, _stop_elsewhere, self._stream.stop)

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline, as the server describes it."""
        return self._spec

    @property
    def element_spec(self) -> Spec:
        """The fields of a batch, per sample (no slots dimension)."""
        return self._spec.element_spec

    @property
    def guarantee(self) -> Guarantee:
        """What the pipeline promises about order, delivery and resuming."""
        return self._spec.guarantee

    @property
    def batch_size(self) -> int:
        """Slots of every batch."""
        return self._job.expected.batch_size

    @property
    def steps(self) -> int | None:
        """Batches that this feed delivers from its beginning to its end; None when that is
        endless or unknown."""
        return self._job.plan.steps

    @property
    def steps_left(self) -> int | None:
        """Batches that are still to be delivered; None when that is endless or unknown."""
        return None if self.steps is None else self.steps - self._meter.steps

    @property
    def steps_per_epoch(self) -> int | None:
        """Whole steps in one epoch (for Keras' `steps_per_epoch`); None when unknown."""
        count = self._spec.sample_count
        return None if count is None else count // self._job.plan.global_stride

    @property
    def may_mask(self) -> bool:
        """Whether a batch can have empty slots."""
        # A data set whose elements are batches may end every epoch with one that is not full.
        ends = bool(self._job.open.epochs) or bool(self._spec.batch_stride)
        padded = ends and self._job.plan.remainder == "pad"
        return padded or self._spec.on_error == "mask"

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Batch:
        return self.next()

    def next(self, timeout: float | None = None) -> Batch:
        """The next batch; raises `StopIteration` behind the last.

        Raises `StallError` when none came within `timeout` seconds (ask again: nothing is lost),
        the error that ended the stream, after every batch before it, or `FeedClosedError`.
        """
        self._check_open()
        with self._lock:
            asked_at = time.monotonic()
            received = self._next(asked_at, timeout)
            if received.position_count is not None:
                self._found = replace(self._found, total=received.position_count)
            if isinstance(received, End):
                raise StopIteration
            batch = received.batch
            samples = int(batch.mask.sum())
            self._meter.took(asked_at, time.monotonic(), samples, received.payload_bytes)
            return batch

    def state(self) -> dict[str, Any]:
        """The cursor: a JSON-able dict that counts the batches which were delivered so far.

        Save it with the model; `connect(..., state=...)` goes on behind the last of them, with
        any world size.
        """
        position = self._found.position(self._meter.steps)
        seed = self._job.expected.seed
        return Cursor(self._spec.name, self._spec.fingerprint, seed, position).to_json()

    def stats(self) -> Stats:
        """What the feed did so far; print it for a summary."""
        return self._meter.stats(self._stream.tally)

    def close(self) -> None:
        """Ends the feed within two seconds, also while another thread waits in `next`."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        self._abandon.detach()
        self._stream.close()
        if self._owns_transport:
            self._transport.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shard = self._job.plan.shard
        return (
            f"Feed({self._spec.name!r} at {self._transport.target}, batch_size={self.batch_size}, "
            f"rank {shard.rank} of {shard.world_size}, {self._meter.steps} delivered)"
        )

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise FeedClosedError(
                f"this feed was opened by process {self._pid}, and its connection did not survive "
                f'the fork into {os.getpid()}: start workers with the method "spawn" and connect '
                "in each of them"
            )
        if self._closed:
            raise FeedClosedError(f"the feed of {self._spec.name!r} was closed")

    def _next(self, asked_at: float, timeout: float | None) -> Received | End:
        """Says in the log that it waits long, for a trainer that does not give up waiting."""
        warn_at = asked_at + STALL_SECONDS
        while True:
            give_up_at = math.inf if timeout is None else asked_at + timeout
            try:
                until = min(warn_at, give_up_at)
                return self._stream.next(max(0.0, until - time.monotonic()))
            except TimeoutError:
                if self._stream.over:  # what ended the stream is one, too
                    raise
                if until == give_up_at:
                    raise self._stalled(timeout or 0.0) from None
                log.warning("%s; waiting on", self._stalled(warn_at - asked_at))
                warn_at += warn_at - asked_at  # twice as long, so that a log stays readable

    def _stalled(self, seconds: float) -> StallError:
        server, why = self._stream.awaited()
        start, _ = self._job.plan.at(self._meter.steps)
        return StallError(
            f"{server}: position {start} of {self._spec.name!r}: no batch within {seconds:g} s; "
            f"{why}",
            server=server,
            position=start,
            seconds=f"{seconds:g}",
        )


def _stop_elsewhere(stop: Callable[[], None]) -> None:
    """Calls `stop` on a new thread: the garbage collector runs a finalizer in the middle of any
    line of any thread, also of one that holds a lock that `stop` takes."""
    try:
        _thread.start_new_thread(stop, ())  # `Thread.start` takes locks itself
    except RuntimeError:  # the interpreter ends, in this thread
        stop()


__all__ = ["PREFETCH_BYTES", "Feed", "connect"]
