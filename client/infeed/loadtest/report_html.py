"""HTML of a load test's report: one page without scripts and without files from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from infeed.loadtest.find_max import Search
from infeed.loadtest.report_text import audit_lines, forecast_text, inexact_reason, notes, plan_text
from infeed.loadtest.summary import Summary, lost_texts
from infeed.loadtest.tables import percent_text, seconds_text, server_table, trainer_table
from infeed.loadtest.tally import Tally
from infeed.shared.errors import MissingExtraError

try:
    import jinja2

    from infeed.loadtest.charts import search_chart, time_charts
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"--html needs the package {error.name!r}: pip install 'infeed[loadtest]'; without it, the "
        "report is text and --json"
    ) from None

_LEVEL_KINDS = {
    "not input-bound": "good",
    "moderately input-bound": "fair",
    "unknown": "unknown",
}


def html_report(summary: Summary, tally: Tally, search: Search | None = None) -> str:
    """Returns the page."""
    is_bad = bool(summary.failures or summary.lost)
    forecast = None if summary.lost else forecast_text(summary.forecast)
    template = files("infeed.loadtest").joinpath("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.from_string(template).render(
        summary=summary,
        name=tally.spec.name,
        plan=plan_text(tally),
        kind="bad" if is_bad else _LEVEL_KINDS.get(summary.verdict.level, "bad"),
        lost=lost_texts(summary),
        forecast=forecast,
        tiles=_tiles(summary),
        search=search,
        search_chart=None if search is None else search_chart(search),
        charts=list(time_charts(summary)),
        tables={"Trainers": trainer_table(summary, tally), "Servers": server_table(summary)},
        lists={
            "Notes": [*audit_lines(summary), *notes(summary, tally)],
            "Events": [f"{at:.1f} s: {text}" for at, text in summary.events],
        },
    )


def _tiles(summary: Summary) -> list[tuple[str, str, str, str]]:
    """Returns name, value, detail and kind of each figure at the top of the page."""
    figures, audit = summary.figures, "exact" if summary.exact else "NOT exact"
    goal = "good" if summary.keeps_utilisation else "bad"
    return [
        (
            "Accelerator utilisation",
            percent_text(summary.utilisation),
            f"worst trainer (rank {summary.worst.rank}); all {percent_text(figures.utilisation)}",
            "" if summary.utilisation is None else goal,
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
            audit if summary.audits else "-",
            _audit_detail(summary),
            ("good" if summary.exact else "bad") if summary.audits else "",
        ),
    ]


def _audit_detail(summary: Summary) -> str:
    if not summary.audits:
        return "the pipeline has no order"
    reasons = (inexact_reason(audit, summary) for audit in summary.audits)
    exact = "every sample position once" if summary.exact else "what is missing is in the notes"
    return next(filter(None, reasons), exact)
