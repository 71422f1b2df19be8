"""Audits of a load test: how often each job delivered each sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from infeed.audit.counter import DeliveryCounter
from infeed.audit.report import AuditReport, AuditRun
from infeed.loadtest.tally import Tally, Trainer


def audits(tally: Tally) -> list[AuditReport]:
    """Returns the audit of each job; none if the pipeline guarantees no order."""
    if tally.spec.guarantee.order == "none":
        return []
    is_alone = tally.plan.independent
    jobs = [[trainer] for trainer in tally.trainers] if is_alone else [tally.trainers]
    return [_audit(tally, number, trainers) for number, trainers in enumerate(jobs)]


def _audit(tally: Tally, job: int, trainers: Sequence[Trainer]) -> AuditReport:
    """Counts the samples of one job, over the steps that all of its ranks have made."""
    stride = tally.spec.stride(tally.batch_size)
    width = stride * len(trainers)
    steps = min(
        max((int(part["start"].max()) // width + 1 for part in _parts(trainer)[0]), default=0)
        for trainer in trainers
    )
    counter, batches = DeliveryCounter(tally.spec), 0
    for trainer in trainers:
        for made, ids in zip(*_parts(trainer), strict=True):
            within = made["start"] < steps * width
            counter.add_batches(made["start"][within], made["epoch"][within], ids[within])
            batches += int(np.count_nonzero(within))
    seed = tally.spec.seed if tally.plan.seed is None else tally.plan.seed
    return AuditReport(
        spec=tally.spec,
        batch_size=tally.batch_size,
        seed=seed + job,
        remainder="drop",
        runs=(AuditRun(0, len(trainers), stride, steps),),
        outcome=counter.outcome(steps * width),
        batches=batches,
        seconds=tally.ended_at - tally.began_at,
    )


def _parts(trainer: Trainer) -> tuple[list[np.ndarray], list[np.ndarray]]:
    steps = [part for life in trainer.lives for part in life.steps]
    return steps, [part for life in trainer.lives for part in life.sample_ids]
