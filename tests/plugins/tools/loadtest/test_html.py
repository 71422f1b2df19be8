"""The page of a load test: well-formed, self-contained and safe."""

from __future__ import annotations

import sys

import pytest
from tests.plugins.tools.loadtest.samples import busy_server, fake, point, steps

from infeed.shared.errors import MissingExtraError
from infeed_tools.loadtest.find_max import Search
from infeed_tools.loadtest.plan import LoadPlan
from infeed_tools.loadtest.report import chart_package, html_report
from infeed_tools.loadtest.summary import summarize
from infeed_tools.loadtest.tally import Tally


@pytest.fixture(scope="module")
def page() -> str:
    """The page for three trainers and two servers, with markup in names."""
    trainers, transport = 3, fake()
    object.__setattr__(transport.spec, "name", "<script>alert(1)</script>")
    made = Tally(LoadPlan(trainers=trainers, step_ms=10, warm_up=0), transport.spec)
    for rank in range(trainers):
        servers = {"<a>:1": busy_server(), "b:1": busy_server(memory_bytes=1_240_000_000)}
        messages = ((0.5, "<a>:1 is <lost>"),) * (rank == 1)
        given = steps(list(range(20)), rank, trainers)
        made.add(rank, point(given, server_reports=servers, messages=messages))
    made.all_began_at, made.ended_at = 0.0, 3.5
    return html_report(summarize(made), Search({1: 0.99, 2: 0.5}, 1, True))


def test_the_page_has_the_report_and_a_chart_of_each_kind(page: str) -> None:
    for part in (
        "1.24 GB",
        "1 trainer can be fed",
        "0.5 s  rank 1: &lt;a&gt;:1 is &lt;lost&gt;",
        "throughput, samples/s",
        "waits for a batch, ms",
        "utilisation of each trainer",
        "waits of the pipeline at &lt;a&gt;:1",
        "waits of the pipeline at b:1",
    ):
        assert part in page


def test_html_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "infeed_tools.loadtest.charts", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'infeed\[loadtest\]'"):
        chart_package()
