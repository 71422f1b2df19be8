"""Summary of a load test: its figures, from what the trainers have sent. No I/O.

Figures are over the measured time: from the warm-up after the last trainer's first batch, to the
stop or the first trainer that is done. The first step of each trainer, and of each restart, is
start-up time and part of no other figure. Neither are stalls, and the time that a trainer is down.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from infeed.audit.report import AuditReport
from infeed.http2.target import is_local
from infeed.loadtest.audits import audits
from infeed.loadtest.figures import Figures, Measured, TrainerFigures, measured, trainer_figures
from infeed.loadtest.forecast import Forecast, forecast_of
from infeed.loadtest.plan import UTILISATION_THRESHOLD
from infeed.loadtest.series import Series, time_series
from infeed.loadtest.server_reports import merged_report
from infeed.loadtest.tally import Tally
from infeed.shared.capacity import capacity
from infeed.shared.report import RankReport, ServerReport
from infeed.shared.verdict import Verdict, judge


@dataclass(frozen=True)
class Check:
    """A threshold, and whether it was kept."""

    name: str
    value: str
    limit: str
    ok: bool


@dataclass(frozen=True)
class Summary:
    """The figures of a load test."""

    seconds: float
    """The measured time."""
    total_seconds: float
    samples_per_second: float
    bytes_per_second: float
    figures: Figures
    """Over the steps of all trainers."""
    trainers: tuple[TrainerFigures, ...]
    servers: Mapping[str, ServerReport]
    lost: Mapping[str, float]
    """Servers that went during the test, and the second by which a trainer was without each."""
    missing: frozenset[str]
    """Servers of them that were not there at the end."""
    audits: tuple[AuditReport, ...]
    """Of each job; none if the pipeline guarantees no order."""
    verdict: Verdict
    verdict_text: str
    forecast: Forecast
    series: Series
    events: tuple[tuple[float, str], ...]
    """Seconds since the first start, and what happened."""
    failures: tuple[str, ...]
    interrupted: bool
    cores: int
    """Processors of this machine."""
    cores_used: float
    """Processors of it that all trainers used together."""
    checks: tuple[Check, ...] = ()

    @property
    def worst(self) -> TrainerFigures:
        """The trainer that used its accelerator least, or else waited most."""
        return min(
            self.trainers,
            key=lambda trainer: (trainer.figures.utilisation or 0.0, -trainer.figures.wait_p99),
        )

    @property
    def utilisation(self) -> float | None:
        """The utilisation of the worst trainer: a job is as fast as its slowest rank."""
        return self.worst.figures.utilisation

    @property
    def keeps_utilisation(self) -> bool:
        """Whether the worst trainer reaches the threshold of MLPerf Storage."""
        return (self.utilisation or 0.0) >= UTILISATION_THRESHOLD

    @property
    def exact(self) -> bool:
        """Whether every sample was delivered once; True too where that cannot be known."""
        return all(audit.exact for audit in self.audits)

    @property
    def ok(self) -> bool:
        """Whether every threshold was kept, and no trainer failed."""
        return not self.failures and all(check.ok for check in self.checks)


def summarize(tally: Tally) -> Summary:
    """Returns the figures of a load test that has ended, or was interrupted."""
    plan, begin, end = tally.plan, tally.measured_from, tally.ended_at
    made = [measured(trainer, begin, end) for trainer in tally.trainers]
    together = Measured(
        np.concatenate([part.steps for part in made]),
        np.concatenate([part.unanswered_seconds for part in made]),
    )
    pairs = list(zip(tally.trainers, made, strict=True))
    ranks = [RankReport(trainer.rank, part.report(trainer.report)) for trainer, part in pairs]
    trainers = [
        trainer_figures(trainer, part, plan.step_seconds, begin, end) for trainer, part in pairs
    ]
    servers = {address: merged_report(reports, begin) for address, reports in tally.servers.items()}
    there = [report for address, report in servers.items() if address not in tally.missing]
    verdict = judge(ranks, plan.trainers, there, tally.missing)
    text = str(verdict)
    if plan.independent:
        text = f"job {verdict.rank}: {replace(verdict, world_size=1)}"
    ends = [point for trainer in tally.trainers for point in trainer.ends]
    steps = sum(point.stats.report.total_steps for point in ends)
    bytes_per_step = sum(point.stats.bytes for point in ends) / (steps or 1)
    return Summary(
        seconds=end - begin,
        total_seconds=end - tally.began_at,
        samples_per_second=float(together.steps["samples"].sum()) / (end - begin or 1.0),
        bytes_per_second=bytes_per_step * len(together.steps) / (end - begin or 1.0),
        figures=together.figures(plan.step_seconds),
        trainers=tuple(trainers),
        servers=servers,
        lost={address: at - tally.began_at for address, at in tally.lost.items()},
        missing=tally.missing,
        audits=tuple(audits(tally)),
        verdict=verdict,
        verdict_text=text,
        forecast=forecast_of(
            ranks,
            plan.trainers,
            [] if tally.lost else list(servers.values()),  # what is gone makes nothing
            shares_machine=any(map(is_local, servers)),
        ),
        series=time_series(tally),
        events=tuple((at - tally.began_at, text) for at, text in tally.all_events()),
        failures=tuple(tally.failures),
        interrupted=tally.interrupted,
        cores=os.cpu_count() or 1,
        # Threads are in one process, whose use each of them has.
        cores_used=sum(trainer.cpu_share for trainer in trainers[: 1 if plan.threads else None]),
    )


def check(summary: Summary, tally: Tally) -> Summary:
    """Returns the summary with a check for each threshold, and for the audit."""
    return replace(summary, checks=tuple(_checks(summary, tally)))


def _checks(summary: Summary, tally: Tally) -> Iterator[Check]:
    limits = tally.plan.thresholds
    if not any(trainer.step_count for trainer in tally.trainers):
        # Everything else holds of a test without a batch: its audit is exact.
        yield Check("batches", "none", "at least 1", ok=False)
    if summary.lost:
        kept = "any, as asked" if limits.allow_lost_servers else "none"
        text = ", ".join(lost_texts(summary))
        yield Check("lost servers", text, kept, limits.allow_lost_servers)
    if (share := limits.min_utilisation) is not None:
        value = summary.utilisation or 0.0
        name = f"utilisation of the worst trainer, rank {summary.worst.rank}"
        yield Check(name, f"{100 * value:.1f} %", f"at least {100 * share:g} %", value >= share)
    if (most := limits.max_wait_p99_seconds) is not None:
        value = max(trainer.figures.wait_p99 for trainer in summary.trainers)
        name, limit = "p99 of the waits of the worst trainer", f"at most {1000 * most:g} ms"
        yield Check(name, f"{1000 * value:.1f} ms", limit, value <= most)
    if (least := limits.min_samples_per_second) is not None:
        value = summary.samples_per_second
        yield Check("throughput", f"{value:.0f} samples/s", f"at least {least:g}", value >= least)
    if summary.audits:
        yield Check("audit", "exact" if summary.exact else "NOT exact", "exact", summary.exact)


def lost_texts(summary: Summary) -> list[str]:
    """Returns when each server was lost, and whether it came back."""
    return [
        f"{address} was lost by second {at:.1f}"
        + ("" if address in summary.missing else " and came back")
        for address, at in summary.lost.items()
    ]


def to_json(summary: Summary, tally: Tally) -> dict[str, Any]:
    """Returns the summary as values for `json.dumps`."""
    plan = asdict(tally.plan)
    thresholds = plan.pop("thresholds")
    same = (
        *("seconds", "total_seconds", "samples_per_second", "bytes_per_second", "utilisation"),
        *("keeps_utilisation", "failures", "interrupted", "ok"),
    )
    return {
        "pipeline": tally.spec.name,
        "fingerprint": tally.spec.fingerprint,
        "batch_size": tally.batch_size,
        "plan": plan,
        "thresholds": thresholds,
        **{name: getattr(summary, name) for name in same},
        "worst_rank": summary.worst.rank,
        "all": {**asdict(summary.figures), "starved_share": summary.figures.starved_share},
        "trainers": list(map(asdict, summary.trainers)),
        "servers": {
            address: {
                **report.to_json(),
                "capacity": None if address in summary.missing else capacity(report),
            }
            for address, report in summary.servers.items()
        },
        "lost_servers": dict(summary.lost),
        "verdict": {**summary.verdict.to_json(), "text": summary.verdict_text},
        "forecast": asdict(summary.forecast),
        "audit": {
            "exact": summary.exact if summary.audits else None,
            "jobs": [audit.to_json() for audit in summary.audits],
        },
        "series": asdict(summary.series),
        "events": [{"second": at, "text": text} for at, text in summary.events],
        "checks": list(map(asdict, summary.checks)),
    }
