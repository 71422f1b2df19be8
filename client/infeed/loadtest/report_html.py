"""HTML of a load test's report: one page without scripts and without files from elsewhere."""

from __future__ import annotations

from importlib.resources import files
from itertools import chain

from infeed.loadtest.find_max import Search
from infeed.loadtest.report_text import (
    audit_lines,
    forecast_lines,
    inexact_reasons,
    notes,
    plan_text,
)
from infeed.loadtest.summary import Summary, lost_texts
from infeed.loadtest.tables import Headline, overview, probe_table, server_table, trainer_table
from infeed.loadtest.tally import Tally
from infeed.shared.errors import MissingExtraError

try:
    import jinja2

    from infeed.loadtest.charts import time_charts
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
        forecast=forecast_lines(summary),
        tiles=[*overview(summary), _audit_tile(summary)],
        charts=list(time_charts(summary)),
        tables={
            **({} if search is None else {f"Number of trainers: {search}": probe_table(search)}),
            "Trainers": trainer_table(summary),
            "Servers": server_table(summary),
        },
        lists={
            "Notes": [*audit_lines(summary), *notes(summary, tally)],
            "Events": [f"{at:.1f} s: {text}" for at, text in summary.events],
        },
    )


def _audit_tile(summary: Summary) -> Headline:
    if not summary.audits:
        return Headline("Audit", "-", "the pipeline has no order")
    if summary.exact:
        return Headline("Audit", "exact", "every sample position once", "good")
    reasons = chain.from_iterable(inexact_reasons(audit, summary) for audit in summary.audits)
    return Headline("Audit", "NOT exact", next(reasons, "what is missing is in the notes"), "bad")
