"""Summary of a load test: its figures, computed from the trainers' records without I/O.

Figures cover the measured time: from the end of the warm-up, which begins at the last trainer's
first batch, to the stop or the end of the first trainer. The first step of each trainer counts only
as start-up time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from infeed.shared.report import RankReport, ServerReport
from infeed.shared.verdict import Verdict, judge
from infeed_tools.audit.counter import DeliveryCounter
from infeed_tools.audit.report import AuditReport, AuditRun
from infeed_tools.loadtest.figures import (
    Figures,
    Measured,
    TrainerFigures,
    last_report,
    measured,
    trainer_figures,
)
from infeed_tools.loadtest.series import Series, time_series
from infeed_tools.loadtest.tally import Tally


@dataclass(frozen=True)
class Check:
    """A threshold, and whether it was met."""

    name: str
    value: str
    limit: str
    ok: bool


@dataclass(frozen=True)
class Summary:
    """The figures of a load test."""

    tally: Tally
    seconds: float
    """The measured time."""
    total_seconds: float
    samples_per_second: float
    bytes_per_second: float
    figures: Figures
    """Over the steps of all trainers."""
    trainers: tuple[TrainerFigures, ...]
    servers: Mapping[str, ServerReport]
    """The last report of each server, covering about ten seconds."""
    audits: tuple[AuditReport, ...]
    """The audit of each job; empty if the pipeline guarantees no order."""
    verdict: Verdict
    series: Series
    checks: tuple[Check, ...] = ()

    @property
    def worst(self) -> TrainerFigures:
        """The trainer with the least utilisation or, among equal ones, the longest waits."""
        return min(
            self.trainers,
            key=lambda trainer: (trainer.figures.utilisation or 0.0, -trainer.figures.wait_p99),
        )

    @property
    def utilisation(self) -> float | None:
        """The utilisation of the worst trainer: a job is as fast as its slowest rank."""
        return self.worst.figures.utilisation

    @property
    def verdict_text(self) -> str:
        if self.tally.plan.independent:
            return f"job {self.verdict.rank}: {replace(self.verdict, world_size=1)}"
        return str(self.verdict)

    @property
    def lost(self) -> list[str]:
        """A text for each lost server: when it was lost, and whether it came back."""
        return [
            f"{address} was lost by second {at - self.tally.began_at:.1f}"
            + ("" if address in self.tally.missing else " and came back")
            for address, at in self.tally.lost.items()
        ]

    @property
    def ended_early(self) -> bool:
        """Whether the test was interrupted, had a failure, or lost a server without leave."""
        is_lost = self.tally.lost and not self.tally.plan.allow_lost_servers
        return bool(self.tally.interrupted or self.tally.failures or is_lost)

    @property
    def exact(self) -> bool:
        """Whether every sample was delivered once; also True if that cannot be known."""
        return all(audit.exact for audit in self.audits)

    @property
    def ok(self) -> bool:
        """Whether every threshold was met and no trainer failed."""
        return not self.tally.failures and all(check.ok for check in self.checks)


def summarize(tally: Tally) -> Summary:
    """Returns the figures of a finished or interrupted load test."""
    plan, begin, end = tally.plan, tally.measured_from, tally.ended_at
    made = [measured(trainer, begin, end) for trainer in tally.trainers]
    together = Measured(
        np.concatenate([part.steps for part in made]),
        np.concatenate([part.unanswered_seconds for part in made]),
    )
    pairs = list(zip(tally.trainers, made, strict=True))
    ranks = [RankReport(trainer.rank, part.report(trainer.report)) for trainer, part in pairs]
    servers = {address: last_report(reports) for address, reports in tally.servers.items()}
    there = [report for address, report in servers.items() if address not in tally.missing]
    ends = [trainer.last for trainer in tally.trainers if trainer.last]
    steps = sum(point.stats.report.total_steps for point in ends)
    bytes_per_step = sum(point.stats.bytes for point in ends) / (steps or 1)
    summary = Summary(
        tally=tally,
        seconds=end - begin,
        total_seconds=end - tally.began_at,
        samples_per_second=float(together.steps["samples"].sum()) / (end - begin or 1.0),
        bytes_per_second=bytes_per_step * len(together.steps) / (end - begin or 1.0),
        figures=together.figures(plan.step_seconds),
        trainers=tuple(trainer_figures(*pair, plan.step_seconds) for pair in pairs),
        servers=servers,
        audits=tuple(_audits(tally)),
        verdict=judge(ranks, plan.trainers, there, dict.fromkeys(tally.missing, "does not serve")),
        series=time_series(tally),
    )
    return replace(summary, checks=tuple(_checks(summary)))


def _audits(tally: Tally) -> Iterator[AuditReport]:
    """Yields the audit of each job over the steps that all its ranks have made, or none if the
    pipeline guarantees no order."""
    if tally.spec.guarantee.order == "none":
        return
    stride = tally.spec.stride(tally.batch_size)
    seed = tally.spec.seed if tally.plan.seed is None else tally.plan.seed
    is_alone = tally.plan.independent
    jobs = [[trainer] for trainer in tally.trainers] if is_alone else [tally.trainers]
    for job, trainers in enumerate(jobs):
        width = stride * len(trainers)
        steps = min(
            max((int(part["start"].max()) // width + 1 for part, _ in trainer.points), default=0)
            for trainer in trainers
        )
        run, counter = AuditRun(0, len(trainers), stride, steps), DeliveryCounter(tally.spec)
        for made, ids in (points for trainer in trainers for points in trainer.points):
            within = made["start"] < run.end
            counter.add_batches(made["start"][within], made["epoch"][within], ids[within])
        yield AuditReport(
            spec=tally.spec,
            batch_size=tally.batch_size,
            seed=seed + job,
            remainder="drop",
            runs=(run,),
            outcome=counter.outcome(run.end),
            batches=counter.batches,
            seconds=tally.ended_at - tally.began_at,
        )


def _checks(summary: Summary) -> Iterator[Check]:
    plan = summary.tally.plan
    if not any(trainer.total_steps for trainer in summary.trainers):
        # Without a batch, all other checks would pass: even the audit is exact.
        yield Check("batches", "none", "at least 1", ok=False)
    if summary.lost:
        kept = "any, as allowed" if plan.allow_lost_servers else "none"
        yield Check("lost servers", ", ".join(summary.lost), kept, plan.allow_lost_servers)
    if (share := plan.min_utilisation) is not None:
        value = summary.utilisation or 0.0
        name = f"utilisation of the worst trainer, rank {summary.worst.rank}"
        yield Check(name, f"{100 * value:.1f} %", f"at least {100 * share:g} %", value >= share)
    if (most := plan.max_wait_p99_ms) is not None:
        value = 1000 * max(trainer.figures.wait_p99 for trainer in summary.trainers)
        name = "p99 of the waits of the worst trainer"
        yield Check(name, f"{value:.1f} ms", f"at most {most:g} ms", value <= most)
    if (least := plan.min_samples_per_second) is not None:
        value = summary.samples_per_second
        yield Check("throughput", f"{value:.0f} samples/s", f"at least {least:g}", value >= least)
    if summary.audits:
        yield Check("audit", "exact" if summary.exact else "NOT exact", "exact", summary.exact)


def to_json(summary: Summary) -> dict[str, Any]:
    """Returns the summary as values for `json.dumps`."""
    tally = summary.tally
    same = ("seconds", "total_seconds", "samples_per_second", "bytes_per_second", "utilisation")
    return {
        "pipeline": tally.spec.name,
        "fingerprint": tally.spec.fingerprint,
        "batch_size": tally.batch_size,
        "plan": asdict(tally.plan),
        **{name: getattr(summary, name) for name in (*same, "ok")},
        "failures": tally.failures,
        "interrupted": tally.interrupted,
        "worst_rank": summary.worst.rank,
        "all": asdict(summary.figures),
        "trainers": list(map(asdict, summary.trainers)),
        "servers": {address: report.to_json() for address, report in summary.servers.items()},
        "lost_servers": {name: at - tally.began_at for name, at in tally.lost.items()},
        "verdict": {**summary.verdict.to_json(), "text": summary.verdict_text},
        "audit": {
            "exact": summary.exact if summary.audits else None,
            "jobs": [audit.to_json() for audit in summary.audits],
        },
        "series": asdict(summary.series),
        "events": [{"second": at, "text": text} for at, text in tally.events()],
        "checks": list(map(asdict, summary.checks)),
    }
