"""Likely reasons of an audit that is not exact. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.audit.report import AuditReport

if TYPE_CHECKING:
    from infeed.loadtest.summary import Summary


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
    restarts = sum(max(0, len(each.first_batch_seconds) - 1) for each in summary.trainers)
    reconnects = sum(each.reconnects for each in summary.trainers)
    faults = [
        text
        for count, text in (
            (len(summary.failures), f"{len(summary.failures)} trainers failed"),
            (restarts, f"{restarts} starts again of killed trainers"),
            (reconnects, f"{reconnects} lost connections"),
        )
        if count
    ]
    if not faults:
        return None
    return f"there were {', '.join(faults)}: the events have their times"
