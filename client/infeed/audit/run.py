"""Audit of a served pipeline: reads its epochs as a number of ranks, and counts every sample id.

    from infeed.audit import audit

    result = audit("127.0.0.1:7470", "photos", world_size=3, epochs=2)
    assert result.exact, result.findings()

The ranks are real feeds in this process, and read their batches in step, as a training job does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from itertools import cycle
from typing import Any

from infeed.audit.counter import DeliveryCounter
from infeed.audit.report import AuditReport, AuditRun
from infeed.client import PREFETCH_BYTES, connect
from infeed.cursor import Shard
from infeed.feed import Feed
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import PipelineSpec, Remainder

MAX_RANKS = 1024
"""Feeds in one process: each has a few threads, and more would measure this machine."""

MIN_BATCH_TIMEOUT_SECONDS = 60.0
"""Seconds for one batch at least: a server may have to read a dataset up to it first."""

Progress = Callable[[int, int | None], None]
"""Called after each step with the number of positions read, and of all (None: unknown)."""


def audit(
    target: str,
    pipeline: str,
    *,
    world_size: int | Sequence[int] = 1,
    epochs: int = 1,
    resume_every: int | None = None,
    bad_samples: Collection[int] = (),
    progress: Progress | None = None,
    **options: Any,
) -> AuditReport:
    """Reads epochs from position 0 on, and counts what is delivered.

    target        as in `connect`
    pipeline      as in `connect`
    world_size    number of ranks; with `resume_every` also several numbers, used in turn
    epochs        number of epochs to read
    resume_every  steps after which all ranks close and resume from a saved cursor; None: never
    bad_samples   ids that are known to be bad, for a pipeline with `on_error: substitute`
    progress      called after each step with the number of positions read, and the total (None:
                  unknown)
    options       other options of `connect`, by name, such as `batch_size`, `seed` and `timeout`.
                  `remainder` is `"pad"` by default, to read every sample; None: the pipeline's.
                  All ranks together share `prefetch_bytes`, but each prefetches two batches,
                  whatever their size

    Raises `InvalidRequestError`, and the errors of `connect` and `Feed.next`.
    """
    check_integer("epochs", epochs, 1)
    options = {"remainder": "pad", "prefetch_bytes": PREFETCH_BYTES, "timeout": 20.0, **options}
    options["epochs"] = epochs
    prefetch_bytes = check_integer("prefetch_bytes", options.pop("prefetch_bytes"), 0)
    world_sizes = cycle(_world_sizes(world_size, resume_every))
    started_at = time.monotonic()
    state: dict[str, Any] | None = None
    reader: _EpochReader | None = None
    while True:
        ranks = next(world_sizes)
        options["prefetch_bytes"] = prefetch_bytes // ranks
        with ExitStack() as stack:
            feeds = [
                stack.enter_context(
                    connect(target, pipeline, shard=Shard(rank, ranks), state=state, **options)
                )
                for rank in range(ranks)
            ]
            if reader is None:
                # From a rank's feed: the server would count another feed as one more rank.
                spec, size = feeds[0].spec, feeds[0].batch_size
                remainder = options["remainder"] or spec.remainder
                _check_spec(spec, remainder, epochs, resume_every, bad_samples)
                counter = DeliveryCounter(spec, epochs, bad_samples)
                reader = _EpochReader(counter, spec.stride(size), remainder, progress)
                reader.timeout = max(options["timeout"], MIN_BATCH_TIMEOUT_SECONDS)
            end = reader.read(feeds, feeds[0].state()["position"], resume_every)
            state = feeds[-1].state()
        if end is not None:
            return AuditReport(
                spec=spec,
                batch_size=size,
                seed=state["seed"],
                remainder=remainder,
                runs=tuple(reader.runs),
                outcome=counter.outcome(end),
                batches=reader.batches,
                seconds=time.monotonic() - started_at,
            )


class _EpochReader:
    """Reads the batches of all ranks in step, one run after the other, and counts them."""

    timeout = MIN_BATCH_TIMEOUT_SECONDS
    """Seconds for one batch."""

    def __init__(
        self,
        counter: DeliveryCounter,
        stride: int,
        remainder: Remainder,
        progress: Progress | None,
    ) -> None:
        """`stride` is the number of positions in a batch."""
        self.runs: list[AuditRun] = []
        self.batches = 0
        self._counter, self._stride, self._remainder = counter, stride, remainder
        self._progress = progress or (lambda _positions, _total: None)

    def read(self, feeds: list[Feed], base: int, max_steps: int | None) -> int | None:
        """Reads up to `max_steps` steps from position `base` on.

        Returns the position where the data ends for these ranks; None before the end.
        """
        steps = 0
        live = list(feeds)
        while live and not (steps == max_steps and len(live) == len(feeds)):
            live = [feed for feed in live if self._read_batch(feed)]
            steps += bool(live)
            self._progress(base + steps * len(feeds) * self._stride, self._counter.total)
        run = AuditRun(base, len(feeds), self._stride, steps)
        if steps:
            self.runs.append(run)
        if live and feeds[0].steps_left != 0:
            return None
        return self._end(run, max(feed.state()["position"] for feed in feeds))

    def _read_batch(self, feed: Feed) -> bool:
        """Reads and counts one batch; returns False at the end of the feed."""
        try:
            batch = feed.next(self.timeout)
        except StopIteration:
            return False
        self._counter.add(batch)
        self.batches += 1
        return True

    def _end(self, last_run: AuditRun, feed_position: int) -> int:
        """Returns the end of the data: computed if its length is known, else `feed_position`."""
        total = self._counter.total
        if total is not None:
            if self._remainder == "pad":
                return total
            step = last_run.world_size * last_run.stride
            return last_run.base + (total - last_run.base) // step * step
        # A cursor from before the end was known can be past it.
        return feed_position if last_run.steps else min(feed_position, self._counter.end)


def _world_sizes(world_size: int | Sequence[int], resume_every: int | None) -> tuple[int, ...]:
    several = isinstance(world_size, Sequence) and not isinstance(world_size, str)
    given = world_size if several else [world_size]
    sizes = tuple(check_integer("world_size", size, 1, MAX_RANKS) for size in given)  # type: ignore[union-attr]
    if not sizes:
        raise InvalidRequestError("world_size must have at least one number of ranks, not none")
    if resume_every is None and len(sizes) > 1:
        raise InvalidRequestError(
            f"world_size can have several values ({', '.join(map(str, sizes))}) only with "
            "resume_every: the number of ranks changes at a resume; set resume_every, or give one "
            "world_size"
        )
    if resume_every is not None:
        check_integer("resume_every", resume_every, 1)
    return sizes


def _check_spec(
    spec: PipelineSpec,
    remainder: Remainder,
    epochs: int,
    resume_every: int | None,
    bad_samples: Collection[int],
) -> None:
    """Checks the options against the pipeline. Raises `InvalidRequestError`."""
    name = f"pipeline {spec.name!r}"
    if remainder == "drop" and spec.is_remote:
        raise InvalidRequestError(
            f'{name} cannot be audited with remainder "drop": its engine, '
            f"{spec.engine}, does not report the number of samples, so samples left out look like "
            'lost ones; use remainder "pad"'
        )
    if epochs > 1 and spec.is_remote:
        raise InvalidRequestError(
            f"{name} cannot be audited over {epochs} epochs: its engine, "
            f"{spec.engine}, begins an epoch before the last one is complete, so samples cannot be "
            "counted by epoch; audit one epoch"
        )
    if resume_every is not None and spec.guarantee.resume == "none":
        raise InvalidRequestError(
            f"{name} guarantees {spec.guarantee}: it cannot be audited across a resume; leave out "
            "resume_every"
        )
    if bad_samples and spec.on_error != "substitute":
        raise InvalidRequestError(
            f"bad samples are used only with on_error: substitute; {name} has on_error: "
            f"{spec.on_error}"
        )
