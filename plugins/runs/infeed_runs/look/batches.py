"""Batches of past steps of a run, read again."""

from __future__ import annotations

from collections.abc import Iterator

import infeed
from infeed.batch import Batch
from infeed.cli.connection import Connection
from infeed.run import Run
from infeed.shared.spec import PipelineSpec
from infeed_runs.look.run_options import RunOptions


def read_steps(
    target: str,
    run: Run,
    steps: tuple[int, int],
    rank: int,
    options: RunOptions,
    connection: Connection,
    epochs: int | None = None,
) -> Iterator[tuple[int, Batch, PipelineSpec]]:
    """Yields steps and their batches, segment by segment, with their pipeline's spec."""
    # An empty range goes to `connect` as it is, which raises the error.
    for part in run.parts(*steps) if steps[0] < steps[1] else [steps]:
        world_size = options.world_size or run.sizes(part[0])[1] or 1
        with infeed.connect(
            target,
            run.pipeline,
            state=run.cursor,
            seed=None if run.cursor else run.seed,
            steps=part,
            shard=infeed.Shard(rank, world_size),
            batch_size=options.batch_size,
            epochs=epochs,
            timeout=options.timeout,
            **connection.arguments(),
        ) as feed:
            for step in range(feed.first_step, feed.first_step + len(feed)):
                yield step, feed.next(timeout=max(options.timeout, 60.0)), feed.spec
