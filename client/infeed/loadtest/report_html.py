"""HTML of a load test's report: one page without scripts and without files from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from infeed.loadtest.charts import search_plot, time_plots
from infeed.loadtest.figures import TrainerFigures
from infeed.loadtest.find_max import Search
from infeed.loadtest.inexact import inexact_reason
from infeed.loadtest.page_style import STYLE
from infeed.loadtest.report_text import (
    audit_lines,
    forecast_text,
    memory_text,
    notes,
    percent_text,
    plan_text,
    seconds_text,
)
from infeed.loadtest.summary import Summary, lost_texts
from infeed.loadtest.tally import Tally
from infeed.shared.capacity import capacity
from infeed.shared.report import ServerReport

_LEVEL_KINDS = {
    "not input-bound": "good",
    "moderately input-bound": "fair",
    "unknown": "unknown",
}


def html_report(summary: Summary, tally: Tally, search: Search | None = None) -> str:
    """Returns the page."""
    name = escape(tally.spec.name)
    parts = [
        _header(name, plan_text(tally)),
        _verdict(summary),
        _tiles(summary),
        *([search_plot(search)] if search is not None else []),
        '<section class="plots">',
        *time_plots(summary),
        "</section>",
        _trainers(summary, tally),
        _servers(summary),
        _list("Notes", [*audit_lines(summary), *notes(summary, tally)]),
        _list("Events", [f"{at:.1f} s: {text}" for at, text in summary.events]),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{name}: load test</title><style>{STYLE}</style></head>\n<body><main>"
        + "\n".join(each for each in parts if each)
        + "</main></body></html>\n"
    )


def _header(name: str, text: str) -> str:
    return (
        f'<header><p class="over">infeed loadtest</p><h1>{name}</h1><p>{escape(text)}</p></header>'
    )


def _verdict(summary: Summary) -> str:
    kind = (
        "bad"
        if summary.failures or summary.lost
        else _LEVEL_KINDS.get(summary.verdict.level, "bad")
    )
    lost = [f"<strong>Lost: {escape(each)}</strong>" for each in lost_texts(summary)]
    lines = [*lost, f"<strong>{escape(summary.verdict_text)}</strong>"]
    if not lost and (forecast := forecast_text(summary.forecast)) is not None:
        lines.append(escape(forecast[0].upper() + forecast[1:]) + ".")
    if summary.interrupted:
        lines.append("The test was interrupted.")
    lines += [f"Failed: {escape(each)}" for each in summary.failures]
    checks = "".join(
        f'<li class="{"good" if each.ok else "bad"}">{"✓" if each.ok else "✗ missed:"} '
        f"{escape(each.name)}: {escape(each.value)} <small>({escape(each.limit)})</small></li>"
        for each in summary.checks
    )
    body = "".join(f"<p>{line}</p>" for line in lines)
    return f'<section class="verdict {kind}">{body}<ul class="checks">{checks}</ul></section>'


def _tiles(summary: Summary) -> str:
    figures = summary.figures
    tiles = [
        (
            "Accelerator utilisation",
            percent_text(summary.utilisation),
            f"worst trainer (rank {summary.worst.rank}); all {percent_text(figures.utilisation)}",
            "" if summary.utilisation is None else "good" if summary.keeps_utilisation else "bad",
        ),
        (
            "Throughput",
            f"{summary.samples_per_second:,.0f}",
            f"samples/s; {summary.bytes_per_second / 1e6:.1f} MB/s",
            "",
        ),
        (
            "Wait p99",
            seconds_text(figures.wait_p99),
            f"p50 {seconds_text(figures.wait_p50)}, p99.9 {seconds_text(figures.wait_p999)}",
            "",
        ),
        (
            "Starved steps",
            percent_text(figures.starved_share),
            f"{figures.starved_steps} of {figures.steps} waited over 1 ms",
            "",
        ),
        ("Data ready", percent_text(figures.readiness), "batches there when requested", ""),
        (
            "Audit",
            ("exact" if summary.exact else "NOT exact") if summary.audits else "-",
            _audit_detail(summary),
            ("good" if summary.exact else "bad") if summary.audits else "",
        ),
    ]
    cells = "".join(
        f'<div class="tile {kind}"><dt>{escape(name)}</dt><dd>{escape(value)}'
        f"<small>{escape(detail)}</small></dd></div>"
        for name, value, detail, kind in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _audit_detail(summary: Summary) -> str:
    if not summary.audits:
        return "the pipeline has no order"
    reasons = (inexact_reason(each, summary) for each in summary.audits)
    exact = "every sample position once" if summary.exact else "what is missing is in the notes"
    return next(filter(None, reasons), exact)


def _trainers(summary: Summary, tally: Tally) -> str:
    heads = [
        "rank",
        "steps",
        "utilisation",
        "wait p50",
        "p99",
        "p99.9",
        "longest",
        "starved",
        "ready",
        "step",
        "first batch",
        "processors",
        "memory",
    ]
    # Threads are in one process, whose figures are in the notes.
    end = -2 if tally.plan.threads else None
    rows = (_trainer_row(each)[:end] for each in summary.trainers)
    return _table("Trainers", heads[:end], rows)


def _trainer_row(trainer: TrainerFigures) -> tuple[str, ...]:
    figures = trainer.figures
    measured = (
        percent_text(figures.utilisation),
        seconds_text(figures.wait_p50),
        seconds_text(figures.wait_p99),
        seconds_text(figures.wait_p999),
        seconds_text(figures.wait_max),
        percent_text(figures.starved_share),
        percent_text(figures.readiness),
        seconds_text(figures.step_seconds),
    )
    return (
        str(trainer.rank),
        str(figures.steps),
        *(measured if figures.steps else ("-",) * len(measured)),
        ", ".join(map(seconds_text, trainer.first_batch_seconds)),
        f"{trainer.cpu_share:.2f}",
        memory_text(trainer.memory_bytes),
    )


def _servers(summary: Summary) -> str:
    heads = (
        "server",
        "batches/s",
        "MB/s",
        "source",
        "transforms",
        "no room",
        "no request",
        "encoding",
        "sending",
        "processors",
        "memory",
        "could make",
    )
    rows = ((address, *_server_row(report)) for address, report in summary.servers.items())
    return _table("Servers", heads, rows)


def _server_row(report: ServerReport) -> Iterator[str]:
    yield f"{report.batches / report.seconds:.1f}"
    yield f"{report.bytes / report.seconds / 1e6:.1f}"
    for name in ("source", "transform", "no_budget", "no_request", "encode", "send"):
        yield percent_text(getattr(report, f"{name}_seconds") / report.seconds, 0)
    yield f"{report.cpu_share * report.cores:.1f} of {report.cores:g}"
    share = report.memory_bytes / report.memory_limit_bytes if report.memory_limit_bytes else None
    limit = "" if share is None else f" ({percent_text(share, 0)})"
    yield memory_text(report.memory_bytes) + limit
    able = capacity(report)
    yield "-" if able is None else f"{able:.1f}/s"


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(each)}</td>" for each in row[1:])
        + "</tr>"
        for row in rows
    )
    if not body:
        return ""
    return (
        f'<section><h2>{escape(title)}</h2><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(title)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>"
    )


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(each)}</li>" for each in lines)
    return f"<section><h2>{escape(title)}</h2><ul>{items}</ul></section>" if items else ""
