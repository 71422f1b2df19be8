"""Charts of a load test's page: a figure with a heading, a legend and a plot for each subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from infeed.loadtest import plots
from infeed.loadtest.find_max import Search
from infeed.loadtest.plan import UTILISATION_THRESHOLD
from infeed.loadtest.report_text import percent_text, seconds_text
from infeed.loadtest.series import STATES, Series
from infeed.loadtest.summary import Summary

_STATE_NAMES = {
    "transform": "waits for transforms",
    "source": "waits for the source",
    "no_budget": "waits for room to send",
    "no_request": "has no request",
}


def time_plots(summary: Summary) -> Iterator[str]:
    """Yields the plots over time: throughput, waits, starved steps, trainers and servers."""
    series = summary.series
    xs = [(number + 0.5) * series.bin_seconds for number in range(series.bins)]
    x = plots.Axis(0.0, max(series.end, 1e-3), "{:g} s".format)
    shaded = ((0.0, series.begin),)

    def frame(title: str, y: plots.Axis, threshold: float | None = None) -> plots.Frame:
        return plots.Frame(title, x, y, shaded, summary.events, threshold)

    def tips(place: plots.Frame, texts: Sequence[str]) -> str:
        return plots.tips(place, xs, series.bin_seconds, texts)

    rate = series.samples_per_second
    place = frame("Samples per second over time", plots.linear(rate, "{:,.0f}".format))
    yield _figure(
        "Throughput",
        "samples/s",
        plots.draw(
            place,
            plots.line(place, xs, rate, "c1", area=True),
            tips(place, [f"{at:.0f} s: {each or 0:.0f} samples/s" for at, each in _at(xs, rate)]),
        ),
    )
    waits = [*series.wait_p50, *series.wait_p99, *series.wait_max]
    place = frame("Waits over time", plots.logarithmic(waits, 1e-4, 1e-1, _short))
    yield _figure(
        "Waits for a batch",
        _legend(("c1", "p50"), ("c2", "p99"), ("c3", "longest")),
        plots.draw(
            place,
            *(
                plots.line(place, xs, row, color)
                for row, color in (
                    (series.wait_max, "c3"),
                    (series.wait_p99, "c2"),
                    (series.wait_p50, "c1"),
                )
            ),
            tips(place, _wait_tips(series, xs)),
        ),
    )
    place = frame("Share of starved steps over time", _share_axis())
    yield _figure(
        "Starved steps",
        "share of the steps that waited over 1 ms",
        plots.draw(
            place,
            plots.line(place, xs, series.starved_share, "c2", area=True),
            tips(
                place, [f"{t:.0f} s: {percent_text(v)}" for t, v in _at(xs, series.starved_share)]
            ),
        ),
    )
    if summary.figures.utilisation is not None:
        yield _heat(summary, x)
    for address, rows in series.servers.items():
        place = frame(f"What the pipeline of {address} waited for", _share_axis())
        states = {name: rows[name] for name in STATES}
        texts = [
            ", ".join(
                f"{_STATE_NAMES[name]} {percent_text(row[i], 0)}" for name, row in states.items()
            )
            + f"; processors {percent_text(rows['cpu'][i], 0)}"
            for i in range(series.bins)
        ]
        yield _figure(
            f"Server {address}",
            _legend(*((name, _STATE_NAMES[name]) for name in STATES), ("cpu", "processors used")),
            plots.draw(
                place,
                plots.stack(place, xs, states),
                plots.line(place, xs, rows["cpu"], "cpu"),
                tips(place, texts),
            ),
        )


def _heat(summary: Summary, x: plots.Axis) -> str:
    rows = summary.series.utilisation
    every = max(1, -(-len(rows) // 16))
    names = plots.Axis(float(len(rows)), 0.0, lambda _: "")
    height = min(420, max(plots.HEIGHT, 42 + 14 * len(rows)))
    place = plots.Frame(
        "Utilisation of each trainer over time", x, names, (), summary.events, None, height
    )
    labels = "".join(
        f'<text class="tick" x="51" y="{place.top(rank + 0.5) + 4:.1f}" text-anchor="end">'
        f"{rank}</text>"
        for rank in range(0, len(rows), every)
    )
    cells = plots.heat_map(
        place,
        summary.series.bin_seconds,
        rows,
        lambda rank, at, share: f"rank {rank}, second {at}: {percent_text(share, 0)}",
    )
    legend = (
        '<span class="ramp" aria-hidden="true"></span> 100 % to 0 %, by rank; empty: no step ended'
    )
    return _figure("Utilisation of each trainer", legend, plots.draw(place, labels, cells))


def search_plot(search: Search) -> str:
    """Returns the plot of a search for the number of trainers."""
    probes = sorted(search.probes, key=lambda each: each.trainers)
    most = max(float(search.forecast or 0), *(float(each.trainers) for each in probes), 2.0)
    place = plots.Frame(
        "Utilisation by number of trainers",
        plots.Axis(0.0, 1.05 * most, "{:g}".format),
        _share_axis(),
        marks=[] if search.forecast is None else [(search.forecast, "forecast")],
        threshold=UTILISATION_THRESHOLD,
    )
    points = [
        (each.trainers, each.utilisation, f"{each.trainers}: {percent_text(each.utilisation)}")
        for each in probes
    ]
    plot = plots.draw(
        place,
        plots.line(place, [each.trainers for each in probes], [p[1] for p in points], "c1"),
        plots.dots(place, points, "c1"),
    )
    figure = _figure("Utilisation by number of trainers", "marked: the forecast", plot)
    return f'<section class="plots">{figure}<p class="big">{escape(str(search))}.</p></section>'


def _figure(title: str, caption: str, plot: str) -> str:
    return (
        f"<figure><figcaption><h2>{escape(title)}</h2><p>{caption}</p></figcaption>{plot}</figure>"
    )


def _legend(*entries: tuple[str, str]) -> str:
    return " ".join(
        f'<span class="key"><i class="{color}"></i>{escape(name)}</span>' for color, name in entries
    )


def _wait_tips(series: Series, xs: Sequence[float]) -> list[str]:
    rows = zip(xs, series.wait_p50, series.wait_p99, series.wait_max, strict=True)
    return [
        f"{at:.0f} s: p50 {_known(p50)}, p99 {_known(p99)}, longest {_known(most)}"
        for at, p50, p99, most in rows
    ]


def _known(seconds: float | None) -> str:
    return "-" if seconds is None else seconds_text(seconds)


def _share_axis() -> plots.Axis:
    return plots.Axis(0.0, 1.0, lambda share: f"{100 * share:.0f} %")


def _short(seconds: float) -> str:
    """Returns a power of ten seconds without decimals."""
    if seconds < 0.9e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 0.9 else f"{seconds:.0f} s"


def _at(xs: Sequence[float], row: Sequence[float | None]) -> Iterator[tuple[float, float | None]]:
    return zip(xs, row, strict=True)
