"""Report of a load test: the same lines and tables as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

from infeed.shared.errors import MissingExtraError
from infeed_tools.audit.report import plural
from infeed_tools.loadtest.find_max import Search
from infeed_tools.loadtest.plan import UTILISATION_THRESHOLD
from infeed_tools.loadtest.summary import Summary
from infeed_tools.loadtest.tally import Tally

_MAX_TRAINERS = 16
"""Rows of the text: more would not fit on a screen, and the page has them."""

_MAX_FINDINGS = 10
"""Lines of an audit that is not exact: more would hide what follows."""

_MIN_UNANSWERED_SECONDS = 1.0
"""Seconds of a wait at the end of a test from which it is worth a note."""

_FREE_SHARE = 0.75
"""Share of a server's processors that is free of other processes, below which it is named."""

_LATE_FACTOR = 1.1
"""Length of a step ÷ asked length, from which this machine is too busy for so many trainers."""

_STATES = ("source", "transform", "no_budget", "no_request")


class Headline(NamedTuple):
    """A figure of the whole test."""

    title: str
    value: str
    detail: str
    kind: str = ""
    """"good" or "bad", if it is either."""


@dataclass(frozen=True)
class Table:
    """A table of text."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def lines(self) -> Iterator[str]:
        """Yields lines of text with columns of equal width."""
        rows = [self.heads, *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for first, *rest in rows:
            cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
            yield "  ".join([f"{first:<{widths[0]}}", *cells])


def text_report(summary: Summary, search: Search | None = None) -> str:
    """Returns the whole report, with a line feed at its end."""
    hidden = len(summary.trainers[_MAX_TRAINERS:])
    lines = [
        *(f"LOST: {text}" for text in summary.lost),
        summary.verdict_text,
        *(["interrupted: the figures so far"] if summary.tally.interrupted else []),
        "",
        f"{summary.tally.spec.name}: {_plan_text(summary.tally)}",
        *(f"{title}: {value} {detail}" for title, value, detail, _ in _headlines(summary)),
        "",
        *_trainer_table(summary, _MAX_TRAINERS).lines(),
        *([f"and {hidden} more, which waited less"] if hidden else []),
        "",
        *(_server_table(summary).lines() if summary.servers else ["no server has reported"]),
        *_notes(summary),
        *(f"  {at:6.1f} s  {text}" for at, text in summary.tally.events()),
        *(f"FAILED {failure}" for failure in summary.tally.failures),
    ]
    for check in summary.checks:
        word = "ok" if check.ok else "MISSED"
        lines.append(f"{word}: {check.name}: {check.value} ({check.limit})")
    return "\n".join([*lines, *([str(search)] if search else [])]) + "\n"


def html_report(summary: Summary, search: Search | None = None) -> str:
    """Returns one page without scripts and without files from elsewhere."""
    jinja2, time_charts = html_packages()
    tally, level = summary.tally, summary.verdict.level
    kinds = {"not input-bound": "good", "moderately input-bound": "fair", "unknown": "unknown"}
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    template = files("infeed_tools.loadtest").joinpath("page.html").read_text(encoding="utf-8")
    page: str = environment.from_string(template).render(
        summary=summary,
        tally=tally,
        plan=_plan_text(tally),
        kind="bad" if tally.failures or tally.lost else kinds.get(level, "bad"),
        search=search,
        tiles=list(_headlines(summary)),
        charts=list(time_charts(summary)),
        tables={"Trainers": _trainer_table(summary), "Servers": _server_table(summary)},
        lists={
            "Notes": list(_notes(summary)),
            "Events": [f"{at:.1f} s: {text}" for at, text in tally.events()],
        },
    )
    return page


def html_packages() -> tuple[Any, Any]:
    """Returns what the page needs. Raises `MissingExtraError`."""
    try:
        import jinja2  # noqa: PLC0415 - of an extra

        from infeed_tools.loadtest.charts import time_charts  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"--html needs the package {error.name!r}: pip install 'infeed[loadtest]'; without it, "
            "the report is text and --json"
        ) from None
    return jinja2, time_charts


def _plan_text(tally: Tally) -> str:
    """Returns what was tested, in one line, without the pipeline's name."""
    plan = tally.plan
    kind = plural(plan.trainers, "independent job" if plan.independent else "rank")
    of = "" if plan.independent or plan.trainers == 1 else " of one job"
    step = f"steps of {_seconds(plan.step_seconds)}" if plan.step_ms else "no step time"
    return f"{kind}{of}, batches of {tally.batch_size}, {step}"


def _headlines(summary: Summary) -> Iterator[Headline]:
    figures = summary.figures
    if summary.utilisation is not None:
        # No goal, unless it is asked for as a threshold: then a check says what became of it.
        keeps = summary.utilisation >= UTILISATION_THRESHOLD
        detail = (
            f"of the worst trainer (rank {summary.worst.rank}), "
            f"{'at least' if keeps else 'below'} the {UTILISATION_THRESHOLD:.0%} of MLPerf "
            f"Storage; all {_percent(figures.utilisation)}"
        )
        kind = "good" if keeps else "bad"
        yield Headline("Accelerator utilisation", _percent(summary.utilisation), detail, kind)
    detail = (
        f"samples/s, {summary.bytes_per_second / 1e6:.1f} MB/s, measured over "
        f"{summary.seconds:.1f} s of {summary.total_seconds:.1f} s"
    )
    yield Headline("Throughput", f"{summary.samples_per_second:,.0f}", detail)
    detail = f"p50 {_seconds(figures.wait_p50)}, longest {_seconds(figures.wait_max)}"
    yield Headline("Wait p99", _seconds(figures.wait_p99), detail)
    detail = f"{figures.starved_steps} of {figures.steps} waited over 1 ms"
    yield Headline("Starved steps", _percent(figures.starved_share), detail)
    if not summary.audits:
        yield Headline("Audit", "-", "not possible, for the pipeline guarantees no order")
    elif summary.exact:
        yield Headline("Audit", "exact", "every sample position once", "good")
    else:
        yield Headline("Audit", "NOT exact", "what is missing is in the notes", "bad")


def _trainer_table(summary: Summary, most: int | None = None) -> Table:
    """Returns a row for each trainer; with `most`, for the trainers with the least utilisation."""
    worst = sorted(summary.trainers, key=lambda trainer: trainer.figures.utilisation or 0.0)
    rows = []
    for trainer in sorted(worst[:most], key=lambda trainer: trainer.rank):
        figures, cells = trainer.figures, ["-"] * 5
        if figures.steps:
            waits = map(_seconds, (figures.wait_p50, figures.wait_p99, figures.wait_max))
            cells = [_percent(figures.utilisation), *waits, _percent(figures.starved_share)]
        first = trainer.first_batch_seconds
        shown = "none" if first is None else _seconds(first)
        rows.append((str(trainer.rank), str(figures.steps), *cells, shown))
    heads = ("rank", "steps", "util.", "wait p50", "p99", "longest", "starved", "first batch")
    return Table(heads, rows)


def _server_table(summary: Summary) -> Table:
    rows = []
    for address, report in summary.servers.items():
        shares = (getattr(report, f"{name}_seconds") / report.seconds for name in _STATES)
        row = (
            f"{report.batches / report.seconds:.1f}",
            f"{report.bytes / report.seconds / 1e6:.1f}",
            *(f"{100 * share:.0f} %" for share in shares),
            f"{report.cpu_share * report.cores:.1f} of {report.cores:g}",
            f"{report.memory_bytes / 1e9:.2f} GB",
            "lost" if address in summary.tally.missing else "serves",
        )
        rows.append((address, *row))
    states = (name.replace("_", " ") for name in _STATES)
    heads = ("server", "batches/s", "MB/s", *states, "processors", "memory", "at the end")
    return Table(heads, rows)


def _notes(summary: Summary) -> Iterator[str]:
    """Yields the audits, and what limits the figures."""
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
        yield f"note: nothing was measured, for {waiting} had no batch when the test ended"
    elif not summary.seconds:
        warm_up = f"{plan.warm_up_seconds:g} s"
        yield f"note: nothing was measured, for the test ended in its warm-up of {warm_up}"
    starving = max(trainers, key=lambda trainer: trainer.figures.unanswered_seconds)
    if starving.figures.unanswered_seconds > _MIN_UNANSWERED_SECONDS:
        seconds = _seconds(starving.figures.unanswered_seconds)
        yield f"note: at the end, rank {starving.rank} had waited {seconds} for a batch in vain"
    longest = max(trainer.figures.step_seconds for trainer in trainers)
    if plan.step_ms and longest > _LATE_FACTOR * plan.step_seconds:
        yield (
            f"note: this machine is too busy for {plan.trainers} trainers: a step of "
            f"{_seconds(plan.step_seconds)} took up to {_seconds(longest)}; start the test from a "
            "machine of its own, or with fewer trainers"
        )

    for address, report in summary.servers.items():
        if report.usable_cores < _FREE_SHARE * report.cores:
            yield (
                f"note: other processes left {report.usable_cores:.1f} of {report.cores:g} "
                f"processors to {address}"
            )


def _seconds(value: float) -> str:
    """Returns a time with a fit unit."""
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
