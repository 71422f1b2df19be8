"""Report of a load test: text, and a page with the text and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from string import Template

from infeed.shared.errors import MissingExtraError
from infeed_tools.audit.report import plural
from infeed_tools.loadtest.find_max import Search
from infeed_tools.loadtest.plan import UTILISATION_THRESHOLD
from infeed_tools.loadtest.series import STATES
from infeed_tools.loadtest.summary import Summary
from infeed_tools.loadtest.tally import Tally

MAX_TRAINERS = 16
"""Trainers in the text: more would not fit on a screen; the page shows all."""

_MAX_FINDINGS = 10
"""Lines about an inexact audit: more would hide what follows."""

_MIN_UNANSWERED_SECONDS = 1.0
"""Seconds of an unanswered wait at the end of a test that deserve a note."""

_FREE_SHARE = 0.75
"""Share of a server's processors left free by other processes; below it, a note says so."""

_LATE_FACTOR = 1.1
"""Actual ÷ requested length of a step above which this machine is too busy for the trainers."""

_PAGE = Template("""\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>$title: load test</title>
<style>body { font-family: system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 1em; }
pre { overflow-x: auto; } svg { background: white; height: auto; width: 100%; }</style></head>
<body><h1>$title: load test</h1><pre>$text</pre>$charts</body></html>
""")


def text_report(
    summary: Summary, search: Search | None = None, most_trainers: int | None = MAX_TRAINERS
) -> str:
    """Returns the whole report, ending in a line feed."""
    hidden = 0 if most_trainers is None else len(summary.trainers[most_trainers:])
    lines = [
        *(f"LOST: {text}" for text in summary.lost),
        summary.verdict_text,
        *(["interrupted; figures so far:"] if summary.tally.interrupted else []),
        "",
        f"{summary.tally.spec.name}: {_plan_text(summary.tally)}",
        *_headlines(summary),
        "",
        *_aligned(_trainer_rows(summary, most_trainers)),
        *([f"and {hidden} more, which waited less"] if hidden else []),
        "",
        *(_aligned(_server_rows(summary)) if summary.servers else ["no server sent a report"]),
        *_notes(summary),
        *(f"  {at:6.1f} s  {text}" for at, text in summary.tally.events()),
        *(f"FAILED {failure}" for failure in summary.tally.failures),
    ]
    for check in summary.checks:
        word = "ok" if check.ok else "MISSED"
        lines.append(f"{word}: {check.name}: {check.value} ({check.limit})")
    return "\n".join([*lines, *([str(search)] if search else [])]) + "\n"


def html_report(summary: Summary, search: Search | None = None) -> str:
    """Returns the report with charts, as a page without scripts and other files. Raises
    `MissingExtraError`."""
    draw_charts = chart_package()
    return _PAGE.substitute(
        title=escape(summary.tally.spec.name),
        text=escape(text_report(summary, search, None)),
        charts=draw_charts(summary),
    )


def chart_package() -> Callable[[Summary], str]:
    """Returns the function that draws the charts. Raises `MissingExtraError`."""
    try:
        from infeed_tools.loadtest.charts import draw_charts  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"--html needs the package {error.name!r}: pip install 'infeed[loadtest]', or omit "
            "--html"
        ) from None
    return draw_charts


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields rows of cells as lines with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        yield "  ".join([f"{first:<{widths[0]}}", *cells])


def _plan_text(tally: Tally) -> str:
    """Returns a line about the test, without the pipeline's name."""
    plan = tally.plan
    kind = plural(plan.trainers, "independent job" if plan.independent else "rank")
    of = "" if plan.independent or plan.trainers == 1 else " of one job"
    step = f"steps of {_seconds(plan.step_seconds)}" if plan.step_ms else "no step time"
    return f"{kind}{of}, batches of {tally.batch_size}, {step}"


def _headlines(summary: Summary) -> Iterator[str]:
    """Yields the figures of the whole test."""
    figures = summary.figures
    if summary.utilisation is not None:
        # MLPerf's value is no goal here: if the user sets a threshold, a check judges it.
        relation = "at least" if summary.utilisation >= UTILISATION_THRESHOLD else "below"
        yield (
            f"Accelerator utilisation: {_percent(summary.utilisation)} of the worst trainer (rank "
            f"{summary.worst.rank}), {relation} the {UTILISATION_THRESHOLD:.0%} of MLPerf Storage; "
            f"all {_percent(figures.utilisation)}"
        )
    yield (
        f"Throughput: {summary.samples_per_second:,.0f} samples/s, "
        f"{summary.bytes_per_second / 1e6:.1f} MB/s, measured over {summary.seconds:.1f} s of "
        f"{summary.total_seconds:.1f} s"
    )
    p50, p99, longest = map(_seconds, (figures.wait_p50, figures.wait_p99, figures.wait_max))
    yield f"Wait p99: {p99}; p50 {p50}, longest {longest}"
    share = _percent(figures.starved_share)
    yield f"Starved steps: {share}; {figures.starved_steps} of {figures.steps} waited over 1 ms"
    if not summary.audits:
        yield "Audit: not possible, because the pipeline guarantees no order"
    elif summary.exact:
        yield "Audit: exact: every sample position once"
    else:
        yield "Audit: NOT exact: see the notes for what is missing"


def _trainer_rows(summary: Summary, most: int | None) -> list[tuple[str, ...]]:
    """Returns the heads and a row per trainer; with `most`, only for those with the least
    utilisation."""
    worst = sorted(summary.trainers, key=lambda trainer: trainer.figures.utilisation or 0.0)
    heads = ("rank", "steps", "util.", "wait p50", "p99", "longest", "starved", "first batch")
    rows: list[tuple[str, ...]] = [heads]
    for trainer in sorted(worst[:most], key=lambda trainer: trainer.rank):
        figures, cells = trainer.figures, ["-"] * 5
        if figures.steps:
            waits = map(_seconds, (figures.wait_p50, figures.wait_p99, figures.wait_max))
            cells = [_percent(figures.utilisation), *waits, _percent(figures.starved_share)]
        first = trainer.first_batch_seconds
        shown = "none" if first is None else _seconds(first)
        rows.append((str(trainer.rank), str(figures.steps), *cells, shown))
    return rows


def _server_rows(summary: Summary) -> list[tuple[str, ...]]:
    states = (name.replace("_", " ") for name in STATES)
    rows = [("server", "batches/s", "MB/s", *states, "processors", "memory", "at the end")]
    for address, report in summary.servers.items():
        shares = (getattr(report, f"{name}_seconds") / report.seconds for name in STATES)
        row = (
            f"{report.batches / report.seconds:.1f}",
            f"{report.bytes / report.seconds / 1e6:.1f}",
            *(f"{100 * share:.0f} %" for share in shares),
            f"{report.cpu_share * report.cores:.1f} of {report.cores:g}",
            f"{report.memory_bytes / 1e9:.2f} GB",
            "lost" if address in summary.tally.missing else "serves",
        )
        rows.append((address, *row))
    return rows


def _notes(summary: Summary) -> Iterator[str]:
    """Yields the audits, and reasons to doubt the figures."""
    for number, audit in enumerate(summary.audits):
        if audit.exact and number:
            continue
        never = audit.total("never") - audit.total("left_out")
        yield (
            f"audit of job {number}: {'exact' if audit.exact else 'NOT exact'}: of "
            f"{audit.outcome.end} positions {never} samples were seen 0x, {audit.total('once')} "
            f"1x, {audit.total('more')} >1x"
        )
        yield from [] if audit.exact else [*audit.findings()[:_MAX_FINDINGS], *audit.notes()]
    tally, plan, trainers = summary.tally, summary.tally.plan, summary.trainers
    if lost := sum(trainer.reconnects for trainer in trainers):
        yield f"{plural(lost, 'reconnect')} of trainers"
    if tally.all_began_at is None:
        waiting = f"{plan.trainers - tally.begun} of {plan.trainers} trainers"
        yield f"note: nothing was measured: {waiting} had no batch when the test ended"
    elif not summary.seconds:
        warm_up = f"{plan.warm_up_seconds:g} s"
        yield f"note: nothing was measured: the test ended in its warm-up of {warm_up}"
    starving = max(trainers, key=lambda trainer: trainer.figures.unanswered_seconds)
    if starving.figures.unanswered_seconds > _MIN_UNANSWERED_SECONDS:
        seconds = _seconds(starving.figures.unanswered_seconds)
        yield f"note: at the end, rank {starving.rank} had waited {seconds} for its next batch"
    longest = max(trainer.figures.step_seconds for trainer in trainers)
    if plan.step_ms and longest > _LATE_FACTOR * plan.step_seconds:
        yield (
            f"note: this machine is too busy for {plan.trainers} trainers: a step of "
            f"{_seconds(plan.step_seconds)} took up to {_seconds(longest)}; run the test on a "
            "separate machine, or with fewer trainers"
        )

    for address, report in summary.servers.items():
        if report.usable_cores < _FREE_SHARE * report.cores:
            yield (
                f"note: other processes left {report.usable_cores:.1f} of {report.cores:g} "
                f"processors to {address}"
            )


def _seconds(value: float) -> str:
    """Returns a time in a suitable unit."""
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
