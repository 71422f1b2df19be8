"""Summary of a load test: its figures, from what the trainers have sent. No I/O.

Figures are over the measured time: from the warm-up after the last trainer's first batch, to the
stop or the first trainer that is done. The first step of each trainer, and of each restart, is
start-up time and part of no other figure. Neither are stalls, and the time that a trainer is down.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from infeed.audit.report import AuditReport
from infeed.http2.target import is_local
from infeed.loadtest.figures import (
    COLUMNS,
    Figures,
    TrainerFigures,
    figures_of,
    selected_steps,
    trainer_figures,
)
from infeed.loadtest.forecast import Forecast, forecast_of, measured_report
from infeed.loadtest.plan import UTILISATION_THRESHOLD
from infeed.loadtest.series import Series, time_series
from infeed.loadtest.server_reports import merged_reports
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
    checks: tuple[Check, ...] = ()

    @property
    def worst(self) -> TrainerFigures:
        """The trainer that used its accelerator least, or else waited most."""
        return min(
            self.trainers,
            key=lambda each: (each.figures.utilisation or 0.0, -each.figures.wait_p99),
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
        return all(each.exact for each in self.audits)

    @property
    def ok(self) -> bool:
        """Whether every threshold was kept, and no trainer failed."""
        return not self.failures and all(each.ok for each in self.checks)


def summarize(tally: Tally) -> Summary:
    """Returns the figures of a load test that has ended, or was interrupted."""
    end = tally.ended_at
    begin = min(end, tally.measured_from)
    trainers = tuple(trainer_figures(each, tally, begin, end) for each in tally.trainers)
    selected = [selected_steps(each, begin, end) for each in tally.trainers]
    together = {name: np.concatenate([each[name] for each in selected]) for name in COLUMNS}
    seconds = end - begin
    samples = float(together["samples"].sum())
    ranks = [
        RankReport(trainer.rank, measured_report(trainer.report, arrays))
        for trainer, arrays in zip(tally.trainers, selected, strict=True)
    ]
    servers = {
        address: merged_reports(reports, begin)
        for address, reports in tally.servers.items()
        if reports
    }
    there = {name: each for name, each in servers.items() if name not in tally.missing}
    verdict = judge(ranks, tally.plan.trainers, list(there.values()), tally.missing)
    text = str(verdict)
    if tally.plan.independent:
        text = f"job {verdict.rank}: {replace(verdict, world_size=1)}"
    return Summary(
        seconds=seconds,
        total_seconds=end - tally.began_at,
        samples_per_second=samples / seconds if seconds else 0.0,
        bytes_per_second=_bytes_per_step(tally) * len(together["wait_seconds"]) / (seconds or 1.0),
        figures=figures_of(together, tally.plan.step_seconds),
        trainers=trainers,
        servers=servers,
        lost={address: at - tally.began_at for address, at in tally.lost.items()},
        missing=frozenset(tally.missing),
        audits=tuple(tally.audits(end - tally.began_at)),
        verdict=verdict,
        verdict_text=text,
        forecast=forecast_of(
            ranks,
            tally.plan.trainers,
            [] if tally.lost else list(servers.values()),  # what is gone makes nothing
            neighbours=[report for address, report in servers.items() if is_local(address)],
            trainer_cores=cores_used(trainers, tally),
        ),
        series=time_series(tally),
        events=tuple((at - tally.began_at, text) for at, text in tally.all_events()),
        failures=tuple(tally.failures),
        interrupted=tally.interrupted,
        cores=os.cpu_count() or 1,
    )


def cores_used(trainers: Sequence[TrainerFigures], tally: Tally) -> float:
    """Returns the processors of this machine that all trainers used together."""
    # Threads are in one process, whose use each of them has.
    processes = trainers[:1] if tally.plan.threads else trainers
    return sum(each.cpu_share for each in processes)


def check(summary: Summary, tally: Tally) -> Summary:
    """Returns the summary with a check for each threshold, and for the audit."""
    limits, checks = tally.plan.thresholds, []
    if not any(each.step_count for each in tally.trainers):
        # Everything else holds of a test without a batch: its audit is exact.
        checks.append(Check("batches", "none", "at least 1", ok=False))
    if summary.lost:
        kept = "any, as asked" if limits.allow_lost_servers else "none"
        text = ", ".join(lost_texts(summary))
        checks.append(Check("lost servers", text, kept, limits.allow_lost_servers))
    if (share := limits.min_utilisation) is not None:
        value = summary.utilisation or 0.0
        checks.append(
            Check(
                f"utilisation of the worst trainer, rank {summary.worst.rank}",
                f"{100 * value:.1f} %",
                f"at least {100 * share:g} %",
                value >= share,
            )
        )
    if (most := limits.max_wait_p99_seconds) is not None:
        value = max(each.figures.wait_p99 for each in summary.trainers)
        checks.append(
            Check(
                "p99 of the waits of the worst trainer",
                f"{1000 * value:.1f} ms",
                f"at most {1000 * most:g} ms",
                value <= most,
            )
        )
    if (least := limits.min_samples_per_second) is not None:
        value = summary.samples_per_second
        checks.append(
            Check("throughput", f"{value:.0f} samples/s", f"at least {least:g}", value >= least)
        )
    if summary.audits:
        value_text = "exact" if summary.exact else "NOT exact"
        checks.append(Check("audit", value_text, "exact", summary.exact))
    return replace(summary, checks=tuple(checks))


def lost_texts(summary: Summary) -> list[str]:
    """Returns when each server was lost, and whether it came back."""
    return [
        f"{address} was lost by second {at:.1f}"
        + ("" if address in summary.missing else " and came back")
        for address, at in summary.lost.items()
    ]


def _bytes_per_step(tally: Tally) -> float:
    """Returns the mean bytes on the wire of a batch, over the whole test."""
    ends = [life.last for each in tally.trainers for life in each.lives if life.last is not None]
    steps = sum(each.report.total_steps for each in ends)
    return sum(each.bytes for each in ends) / steps if steps else 0.0


def to_json(summary: Summary, tally: Tally) -> dict[str, Any]:
    """Returns the summary as values for `json.dumps`."""
    document = {
        name: getattr(summary, name)
        for name in ("seconds", "total_seconds", "samples_per_second", "bytes_per_second")
    }
    plan = asdict(tally.plan)
    thresholds = plan.pop("thresholds")
    return {
        "pipeline": tally.spec.name,
        "fingerprint": tally.spec.fingerprint,
        "batch_size": tally.batch_size,
        "plan": plan,
        "thresholds": thresholds,
        **document,
        "utilisation": summary.utilisation,
        "worst_rank": summary.worst.rank,
        "keeps_utilisation": summary.keeps_utilisation,
        "all": {**asdict(summary.figures), "starved_share": summary.figures.starved_share},
        "trainers": [asdict(each) for each in summary.trainers],
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
            "jobs": [each.to_json() for each in summary.audits],
        },
        "series": asdict(summary.series),
        "events": [{"second": at, "text": text} for at, text in summary.events],
        "failures": list(summary.failures),
        "interrupted": summary.interrupted,
        "checks": [asdict(each) for each in summary.checks],
        "ok": summary.ok,
    }
