"""Audit of a served pipeline: reads its epochs as a number of ranks, and counts every sample id.

    from infeed.audit import audit

    result = audit("127.0.0.1:7470", "photos", world_size=3, epochs=2)
    assert result.exact, result.findings()

The ranks are real feeds in this process, which read their batches in step like a training job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle
from typing import Any

from infeed.client import PREFETCH_BYTES, connect
from infeed.cursor import Shard
from infeed.feed import Feed
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import PipelineSpec, Remainder
from infeed_tools.audit.counter import DeliveryCounter
from infeed_tools.audit.report import AuditReport, AuditRun

MAX_RANKS = 1024
"""Feeds in one process. Each has a few threads: with more, this machine would be the limit."""

MIN_BATCH_TIMEOUT_SECONDS = 60.0
"""Least seconds to wait for a batch: a server may have to read a dataset up to it first."""

Progress = Callable[[int, int | None], None]
"""Called after each step with the number of positions read, and the total (None: unknown)."""


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
    """Reads epochs from position 0 on, and counts the delivered samples.

    target        as in `connect`
    pipeline      as in `connect`
    world_size    number of ranks; with `resume_every`, also several numbers, used in turn
    epochs        number of epochs to read
    resume_every  steps after which all ranks close and resume from a saved cursor; None: never
    bad_samples   ids known to be bad, for a pipeline with `on_error: substitute`
    progress      called after each step with the number of positions read, and the total (None:
                  unknown)
    options       other options of `connect`, by name, such as `batch_size`, `seed` and `timeout`.
                  `remainder` is `"pad"` by default, to read every sample; None: the pipeline's.
                  The ranks share `prefetch_bytes`, but each prefetches at least two batches,
                  of any size

    Raises `InvalidRequestError`, and the errors of `connect` and `Feed.next`.
    """
    check_integer("epochs", epochs, 1)
    world_sizes = cycle(_world_sizes(world_size, resume_every))
    options = {"remainder": "pad", "prefetch_bytes": PREFETCH_BYTES, "timeout": 20.0, **options}
    prefetch_bytes = check_integer("prefetch_bytes", options.pop("prefetch_bytes"), 0)
    batch_timeout = max(options["timeout"], MIN_BATCH_TIMEOUT_SECONDS)
    started_at = time.monotonic()
    runs: list[AuditRun] = []
    state: dict[str, Any] | None = None
    is_complete = False
    while not is_complete:
        ranks = next(world_sizes)
        options |= {"epochs": epochs, "prefetch_bytes": prefetch_bytes // ranks, "state": state}
        with ExitStack() as stack:
            feeds = [
                stack.enter_context(connect(target, pipeline, shard=Shard(rank, ranks), **options))
                for rank in range(ranks)
            ]
            if state is None:
                # A rank's own feed: the server would count an extra feed as one more rank.
                spec, size = feeds[0].spec, feeds[0].batch_size
                remainder = options["remainder"] or spec.remainder
                _check_spec(spec, remainder, epochs, resume_every, bad_samples)
                counter = DeliveryCounter(spec, epochs, bad_samples)
            run = AuditRun(feeds[0].state()["position"], ranks, spec.stride(size), 0)
            live = feeds
            while live and not (run.steps == resume_every and len(live) == ranks):
                live = [feed for feed in live if _count_batch(feed, counter, batch_timeout)]
                run = replace(run, steps=run.steps + bool(live))
                if progress is not None:
                    progress(run.end, counter.total)
            is_complete = not live or feeds[0].steps_left == 0
            read = max(feed.state()["position"] for feed in feeds)
            state = feeds[-1].state()
        runs += [run] if run.steps else []
    assert state is not None
    return AuditReport(
        spec=spec,
        batch_size=size,
        seed=state["seed"],
        remainder=remainder,
        runs=tuple(runs),
        outcome=counter.outcome(_end(run, remainder, counter, read)),
        batches=counter.batches,
        seconds=time.monotonic() - started_at,
    )


def _count_batch(feed: Feed, counter: DeliveryCounter, timeout: float) -> bool:
    """Reads and counts a batch; returns False at the end of the feed."""
    try:
        counter.add(feed.next(timeout))
    except StopIteration:
        return False
    return True


def _end(run: AuditRun, remainder: Remainder, counter: DeliveryCounter, read: int) -> int:
    """Returns the end of the data after the last run: computed if its length is known, else `read`,
    the position of the feeds."""
    if (total := counter.total) is not None:
        step = run.world_size * run.stride
        return total if remainder == "pad" else run.base + (total - run.base) // step * step
    # A cursor saved before the end was known may lie past it.
    return read if run.steps else min(read, counter.end)


def _world_sizes(world_size: int | Sequence[int], resume_every: int | None) -> tuple[int, ...]:
    given = world_size if isinstance(world_size, Sequence) else [world_size]
    sizes = tuple(check_integer("world_size", size, 1, MAX_RANKS) for size in given)
    if not sizes or (resume_every is None and len(sizes) > 1):
        raise InvalidRequestError(
            f"world_size {sizes} is not one number of ranks; give one, or set resume_every, since "
            "the number changes only at a resume"
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
    problems = {
        f"its engine {spec.engine} does not report the number of samples, so samples left out "
        'look like lost ones; use remainder "pad"': spec.is_remote and remainder == "drop",
        f"its engine {spec.engine} begins an epoch before the last one is complete; audit one "
        "epoch": spec.is_remote and epochs > 1,
        f"it guarantees {spec.guarantee}, so it cannot be audited across a resume; omit "
        "resume_every": resume_every is not None and not spec.guarantee.can_resume,
        f"its on_error is {spec.on_error}, and bad samples are substituted only with on_error: "
        "substitute; omit them": bad_samples and spec.on_error != "substitute",
    }
    for problem, applies in problems.items():
        if applies:
            raise InvalidRequestError(f"pipeline {spec.name!r}: {problem}")
