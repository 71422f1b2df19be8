"""Text of a load test's report. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from infeed.audit.report import AuditReport
from infeed.http2.target import is_local
from infeed.loadtest.figures import TrainerFigures
from infeed.loadtest.summary import Summary, lost_texts
from infeed.loadtest.tables import memory_text, overview, seconds_text, server_table, trainer_table
from infeed.loadtest.tally import Tally

_MAX_TRAINERS = 16
"""Rows of the text: more would not fit on a screen, and the page has them."""

_MAX_FINDINGS = 10
"""Lines of an audit that is not exact: more would hide what follows."""

_MIN_OTHER_SHARE = 0.1
"""Share of a server's processors from which their use by other processes is worth a note."""

_MIN_UNANSWERED_SECONDS = 1.0
"""Seconds of a wait at the end of a test from which it is worth a note."""

_LATE_FACTOR = 1.1
"""Length of a step ÷ asked length, from which this machine is too busy for so many trainers."""


def plan_text(tally: Tally) -> str:
    """Returns what was tested, in one line, without the pipeline's name."""
    plan = tally.plan
    plural = "s" if plan.trainers > 1 else ""
    kind = "independent job" if plan.independent else "rank"
    of = "" if plan.independent or plan.trainers == 1 else " of one job"
    step = f"steps of {seconds_text(plan.step_seconds)}" if plan.step_seconds else "no step time"
    words = [f"{plan.trainers} {kind}{plural}{of}", f"batches of {tally.batch_size}", step]
    if plan.is_delayed:
        jitter = f" ± {plan.jitter_seconds * 500:g}" if plan.jitter_seconds else ""
        mean = (plan.rtt_seconds + plan.jitter_seconds / 2) * 1000
        words.append(f"round trip {mean:g}{jitter} ms longer")
    return ", ".join(words)


def text_report(summary: Summary, tally: Tally) -> str:
    """Returns the whole report, with a line feed at its end."""
    lines = [
        *(f"LOST: {text}" for text in lost_texts(summary)),
        summary.verdict_text,
        *(["interrupted: the figures so far"] if summary.interrupted else []),
        "",
        f"{tally.spec.name}: {plan_text(tally)}",
        *(f"{title}: {value} {detail}" for title, value, detail, _ in overview(summary)),
        "",
        *_tables(summary),
        *forecast_lines(summary),
        *audit_lines(summary),
        *notes(summary, tally),
    ]
    lines += [f"  {at:6.1f} s  {text}" for at, text in summary.events]
    lines += [f"FAILED {failure}" for failure in summary.failures]
    for check in summary.checks:
        word = "ok" if check.ok else "MISSED"
        lines.append(f"{word}: {check.name}: {check.value} ({check.limit})")
    return "\n".join(lines) + "\n"


def _tables(summary: Summary) -> Iterator[str]:
    yield from trainer_table(summary, _MAX_TRAINERS).lines()
    if hidden := len(summary.trainers[_MAX_TRAINERS:]):
        yield f"and {hidden} more, which waited less"
    yield ""
    if summary.servers:
        yield from server_table(summary).lines()
    else:
        yield "no server has reported"


def forecast_lines(summary: Summary) -> list[str]:
    """Returns what the servers could feed, in one line; none if it is unknown."""
    if summary.lost:
        return ["no forecast: a server was lost"]
    forecast = summary.forecast
    if forecast.capacity is None or forecast.demand is None:
        return []
    plural = "s" if forecast.servers > 1 else ""
    line = (
        f"forecast: these trainers would take {forecast.demand:.1f} batches/s, "
        f"{forecast.servers} server{plural} can make {forecast.capacity:.1f}: enough for "
        f"{forecast.max_trainers} such trainer{'s' * (forecast.max_trainers != 1)}"
    )
    if forecast.shares_machine:
        line += " on this machine, which they share"
    if not forecast.max_trainers and forecast.capacity > 0:
        line += f"; one with steps of {seconds_text(1 / forecast.capacity)} or more would not wait"
    is_short = forecast.capacity < forecast.demand
    needed = forecast.servers_needed
    if is_short and needed is not None and needed > forecast.servers:
        line += f"; {needed} such servers would be enough for these"
    return [line]


def audit_lines(summary: Summary) -> list[str]:
    """Returns how often the samples were delivered, and what was not exact."""
    if not summary.audits:
        return ["audit: not possible, for the pipeline guarantees no order"]
    lines, jobs = [], len(summary.audits)
    for number, audit in enumerate(summary.audits):
        once, more = audit.total("once"), audit.total("more")
        never = audit.total("never") - audit.total("left_out")
        if audit.exact and jobs > 1:
            continue
        job = f" of job {number}" if jobs > 1 else ""
        lines.append(
            f"audit{job}: {'exact' if audit.exact else 'NOT exact'}: of {audit.outcome.end} "
            f"positions {never} samples were seen 0x, {once} 1x, {more} >1x"
        )
        lines += [f"  {finding}" for finding in audit.findings()[:_MAX_FINDINGS]]
        if (reason := inexact_reason(audit, summary)) is not None:
            lines.append(f"  {reason}")
    if exact := sum(audit.exact for audit in summary.audits) * (jobs > 1):
        lines.append(f"audit: {exact} of {jobs} jobs exact")
    return lines


def inexact_reason(audit: AuditReport, summary: Summary) -> str | None:
    """Returns what made an audit inexact most likely, and the remedy; None for an exact one."""
    if audit.exact:
        return None
    outcome = audit.outcome
    misplaced = outcome.undelivered or outcome.redelivered or outcome.beyond
    if not misplaced and audit.total("lost") and audit.spec.on_error == "substitute":
        return (
            "likely bad samples, not lost ones: on_error: substitute fills their slots with other "
            "samples; infeed check FILE --scan names them"
        )
    restarts = sum(max(0, len(trainer.first_batch_seconds) - 1) for trainer in summary.trainers)
    counts = {
        "trainers failed": len(summary.failures),
        "starts again of killed trainers": restarts,
        "lost connections": sum(trainer.reconnects for trainer in summary.trainers),
    }
    faults = [f"{count} {name}" for name, count in counts.items() if count]
    return f"there were {', '.join(faults)}: the events have their times" if faults else None


def notes(summary: Summary, tally: Tally) -> Iterator[str]:
    """Yields what limits the figures, and the resources of the trainers."""
    plan = tally.plan
    processes = summary.trainers[:1] if plan.threads else summary.trainers
    memory = sum(process.memory_bytes for process in processes)
    yield (
        f"trainers used {summary.cores_used:.2f} of this machine's {summary.cores} processors, "
        f"{memory_text(memory)} of memory"
    )
    if tally.all_began_at is None:
        waiting = plan.trainers - tally.begun
        yield (
            f"note: nothing was measured, for {waiting} of {plan.trainers} trainers had no batch "
            "when the test ended"
        )
    elif not summary.seconds:
        yield f"note: nothing was measured, for the test ended in its warm-up of {plan.warm_up:g} s"
    starving = max(summary.trainers, key=lambda trainer: trainer.figures.unanswered_seconds)
    if starving.figures.unanswered_seconds > _MIN_UNANSWERED_SECONDS:
        seconds = seconds_text(starving.figures.unanswered_seconds)
        yield f"note: at the end, rank {starving.rank} had waited {seconds} for a batch in vain"
    for address, report in summary.servers.items():
        others = report.cores - report.usable_cores - summary.cores_used * is_local(address)
        if others > _MIN_OTHER_SHARE * report.cores:
            yield (
                f"note: other processes used {others:.1f} of the {report.cores:g} processors of "
                f"{address}: the forecast is lower with them"
            )
    slow = [trainer for trainer in summary.trainers if _is_late(trainer, plan.step_seconds)]
    if slow:
        longest = max(trainer.figures.step_seconds for trainer in slow)
        yield (
            f"note: this machine is too busy for {plan.trainers} trainers: a step of "
            f"{seconds_text(plan.step_seconds)} took up to {seconds_text(longest)}; start the "
            "test from a machine of its own, or with fewer trainers"
        )
    if lost := sum(trainer.reconnects for trainer in summary.trainers):
        yield f"{lost} reconnects"


def _is_late(trainer: TrainerFigures, step_seconds: float) -> bool:
    late = trainer.figures.step_seconds > _LATE_FACTOR * step_seconds
    return bool(step_seconds and trainer.figures.steps and late)
