"""Audits of a load test: how often each job delivered each sample."""

from __future__ import annotations

from collections.abc import Sequence

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
        max((int(part["start"].max()) // width + 1 for part, _ in trainer.points), default=0)
        for trainer in trainers
    )
    run = AuditRun(0, len(trainers), stride, steps)
    counter = DeliveryCounter(tally.spec)
    for trainer in trainers:
        for made, ids in trainer.points:
            within = made["start"] < run.end
            counter.add_batches(made["start"][within], made["epoch"][within], ids[within])
    seed = tally.spec.seed if tally.plan.seed is None else tally.plan.seed
    return AuditReport(
        spec=tally.spec,
        batch_size=tally.batch_size,
        seed=seed + job,
        remainder="drop",
        runs=(run,),
        outcome=counter.outcome(run.end),
        batches=counter.batches,
        seconds=tally.ended_at - tally.began_at,
    )
