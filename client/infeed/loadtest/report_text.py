"""Text of a load test's report. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from infeed.audit.report import AuditReport
from infeed.http2.target import is_local
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
    kind = _count(plan.trainers, "independent job" if plan.independent else "rank")
    of = "" if plan.independent or plan.trainers == 1 else " of one job"
    step = f"steps of {seconds_text(plan.step_seconds)}" if plan.step_seconds else "no step time"
    words = [f"{kind}{of}", f"batches of {tally.batch_size}", step]
    if mean := (plan.rtt_seconds + plan.jitter_seconds / 2) * 1000:
        jitter = f" ± {plan.jitter_seconds * 500:g}" if plan.jitter_seconds else ""
        words.append(f"round trip {mean:g}{jitter} ms longer")
    return ", ".join(words)


def text_report(summary: Summary, tally: Tally) -> str:
    """Returns the whole report, with a line feed at its end."""
    hidden = len(summary.trainers[_MAX_TRAINERS:])
    lines = [
        *(f"LOST: {text}" for text in lost_texts(summary)),
        summary.verdict_text,
        *(["interrupted: the figures so far"] if summary.interrupted else []),
        "",
        f"{tally.spec.name}: {plan_text(tally)}",
        *(f"{title}: {value} {detail}" for title, value, detail, _ in overview(summary)),
        "",
        *trainer_table(summary, _MAX_TRAINERS).lines(),
        *([f"and {hidden} more, which waited less"] if hidden else []),
        "",
        *(server_table(summary).lines() if summary.servers else ["no server has reported"]),
        *forecast_lines(summary),
        *audit_lines(summary),
        *notes(summary, tally),
        *(f"  {at:6.1f} s  {text}" for at, text in summary.events),
        *(f"FAILED {failure}" for failure in summary.failures),
    ]
    for check in summary.checks:
        word = "ok" if check.ok else "MISSED"
        lines.append(f"{word}: {check.name}: {check.value} ({check.limit})")
    return "\n".join(lines) + "\n"


def forecast_lines(summary: Summary) -> list[str]:
    """Returns what the servers could feed, in one line; none if it is unknown."""
    if summary.lost:
        return ["no forecast: a server was lost"]
    forecast = summary.forecast
    if forecast.capacity is None or forecast.demand is None:
        return []
    line = (
        f"forecast: these trainers would take {forecast.demand:.1f} batches/s, "
        f"{_count(forecast.servers, 'server')} can make {forecast.capacity:.1f}: enough for "
        f"{_count(forecast.max_trainers or 0, 'such trainer')}"
    )
    if forecast.shares_machine:
        line += ", fewer where trainers share its machine"
    if not forecast.max_trainers and forecast.capacity > 0:
        line += f"; one with steps of {seconds_text(1 / forecast.capacity)} or more would not wait"
    needed = forecast.servers_needed or 0
    if forecast.capacity < forecast.demand and needed > forecast.servers:
        line += f"; {needed} such servers would be enough for these"
    return [line]


def audit_lines(summary: Summary) -> list[str]:
    """Returns how often the samples were delivered, and what was not exact."""
    if not summary.audits:
        return ["audit: not possible, for the pipeline guarantees no order"]
    lines, jobs = [], len(summary.audits)
    for number, audit in enumerate(summary.audits):
        if audit.exact and jobs > 1:
            continue
        never = audit.total("never") - audit.total("left_out")
        lines.append(
            f"audit{f' of job {number}' * (jobs > 1)}: {'exact' if audit.exact else 'NOT exact'}: "
            f"of {audit.outcome.end} positions {never} samples were seen 0x, "
            f"{audit.total('once')} 1x, {audit.total('more')} >1x"
        )
        lines += [f"  {finding}" for finding in audit.findings()[:_MAX_FINDINGS]]
        lines += [f"  {reason}" for reason in inexact_reasons(audit, summary)]
    if exact := sum(audit.exact for audit in summary.audits) * (jobs > 1):
        lines.append(f"audit: {exact} of {jobs} jobs exact")
    return lines


def inexact_reasons(audit: AuditReport, summary: Summary) -> Iterator[str]:
    """Yields what made an audit inexact most likely, and the remedy; nothing for an exact one."""
    outcome, restarts = audit.outcome, [len(one.first_batch_seconds) for one in summary.trainers]
    counts = {
        "trainers failed": len(summary.failures),
        "starts again of killed trainers": sum(max(0, starts - 1) for starts in restarts),
        "lost connections": sum(trainer.reconnects for trainer in summary.trainers),
    }
    faults = [f"{count} {name}" for name, count in counts.items() if count]
    misplaced = outcome.undelivered or outcome.redelivered or outcome.beyond
    if not misplaced and audit.total("lost") and audit.spec.on_error == "substitute":
        yield (
            "likely bad samples, not lost ones: on_error: substitute fills their slots with other "
            "samples; infeed check FILE --scan names them"
        )
    elif faults and not audit.exact:
        yield f"there were {', '.join(faults)}: the events have their times"


def notes(summary: Summary, tally: Tally) -> Iterator[str]:
    """Yields what limits the figures, and the resources of the trainers."""
    plan, trainers = tally.plan, summary.trainers
    memory = sum(one.memory_bytes for one in (trainers[:1] if plan.threads else trainers))
    yield (
        f"trainers used {summary.cores_used:.2f} of this machine's {summary.cores} processors, "
        f"{memory_text(memory)} of memory"
    )
    if tally.all_began_at is None:
        yield (
            f"note: nothing was measured, for {plan.trainers - tally.begun} of {plan.trainers} "
            "trainers had no batch when the test ended"
        )
    elif not summary.seconds:
        yield f"note: nothing was measured, for the test ended in its warm-up of {plan.warm_up:g} s"
    starving = max(trainers, key=lambda trainer: trainer.figures.unanswered_seconds)
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
    longest = max(trainer.figures.step_seconds for trainer in trainers)
    if plan.step_seconds and longest > _LATE_FACTOR * plan.step_seconds:
        yield (
            f"note: this machine is too busy for {plan.trainers} trainers: a step of "
            f"{seconds_text(plan.step_seconds)} took up to {seconds_text(longest)}; start the "
            "test from a machine of its own, or with fewer trainers"
        )
    if lost := sum(trainer.reconnects for trainer in trainers):
        yield f"{lost} reconnects"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
