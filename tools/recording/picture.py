"""Drawing of a recording as an SVG that CSS animates; without animation it shows the end."""

from __future__ import annotations

import re
from html import escape
from textwrap import TextWrapper

from tools.recording.panes import Line
from tools.recording.run import Recording

COLUMN, ROW = 8.4, 19
"""Pixels of a character and of a line, at a font of 14 pixels."""

PAUSE_SECONDS = 6.0
"""Time for which the end stays before the picture restarts."""

_SHOWN_LINES = 4
"""The trainer's lines that the picture shows from the start: TensorFlow takes seconds to load, and
readers should see at once that training runs."""

_STYLE = """\
svg { background: #0d1117; border-radius: 8px }
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
  fill: #c9d1d9; white-space: pre }
.frame { fill: #0d1117; stroke: #30363d }
.title { fill: #8b949e; font-size: 12px }
.command { fill: #79c0ff }
.bad { fill: #ff7b72; font-weight: bold }
.good { fill: #56d364; font-weight: bold }
"""


def draw(recording: Recording) -> str:
    """Returns the SVG's text."""
    begin = recording.trainer[_SHOWN_LINES - 1].time
    length = recording.trainer[-1].time - begin + PAUSE_SECONDS
    film = _Film(begin, length)
    # A live server ends after the trainer.
    end = recording.trainer[-1].time
    first, second = ([line for line in lines if line.time <= end] for lines in recording.servers)
    left, right, height = 52, 50, 19
    film.pane("trainer", recording.trainer, 0, 0, left, height)
    top = 0
    for title, lines, rows in (
        ("server 1", first, 6),
        ("server 2", second, 4),
        ("shell", recording.shell, height - 6 - 4 - 4),
    ):
        film.pane(title, lines, left, top, right, rows)
        top += rows * ROW + _BORDER
    return film.svg((left + right) * COLUMN + 4 * _MARGIN, top)


_MARGIN = 8
_BORDER = 2 * ROW
"""Height of a pane's title and frame."""


class _Film:
    """Elements of the picture, and the style that shows each at its time."""

    def __init__(self, begin: float, length: float) -> None:
        self._begin, self._length = begin, length
        self._styles: list[str] = []
        self._elements: list[str] = []

    def pane(
        self, title: str, lines: list[Line], column: int, top: int, width: int, height: int
    ) -> None:
        """Draws a terminal of `width` characters and `height` lines, which scrolls."""
        x, w, h = column * COLUMN + (column > 0) * 2 * _MARGIN, width * COLUMN, height * ROW
        clip = f"pane{len(self._elements)}"
        rows = [Line(line.time, part) for line in lines for part in _wrapped(line.text, width)]
        scrolls = [(0.0, 0)] + [
            (self._share(row.time), (number + 1 - height) * ROW)
            for number, row in enumerate(rows)
            if number >= height
        ]
        texts = "\n".join(self._text(row, number) for number, row in enumerate(rows))
        self._elements.append(
            f'<rect class="frame" x="{x + 0.5:.1f}" y="{top + 0.5:.1f}" rx="6" '
            f'width="{w + 2 * _MARGIN - 1:.1f}" height="{h + _BORDER - 1:.1f}"/>\n'
            f'<text class="title" x="{x + _MARGIN:.1f}" y="{top + 16:.1f}">{title}</text>\n'
            f'<svg x="{x + _MARGIN:.1f}" y="{top + 26:.1f}" width="{w:.1f}" height="{h}" '
            f'style="background: none">\n'
            f'<g class="{clip}">\n{texts}\n</g>\n</svg>'
        )
        if len(scrolls) > 1:
            keys = "".join(
                f"{100 * share:.2f}% {{ transform: translateY({-pixels}px) }}\n"
                for share, pixels in scrolls
            )
            self._animate(clip, keys, f"transform: translateY({-scrolls[-1][1]}px)")

    def _text(self, row: Line, number: int) -> str:
        share = self._share(row.time)
        name = f"at{round(10_000 * share)}"
        if share > 0:
            self._animate(name, f"0% {{ opacity: 0 }} {100 * share:.2f}% {{ opacity: 1 }}")
        kind = next((kind for kind, pattern in _KINDS if re.search(pattern, row.text)), "")
        return f'<text class="{name} {kind}" y="{number * ROW + 14}">{escape(row.text)}</text>'

    def _animate(self, name: str, keys: str, end: str = "") -> None:
        style = (
            f"@keyframes {name} {{ {keys} }}\n"
            f".{name} {{ animation: {name} {self._length:.2f}s step-end infinite; {end} }}"
        )
        if style not in self._styles:
            self._styles.append(style)

    def _share(self, moment: float) -> float:
        return max(0.0, (moment - self._begin) / self._length)

    def svg(self, width: float, height: float) -> str:
        """Returns the whole picture."""
        styles, elements = "\n".join(self._styles), "\n".join(self._elements)
        still = "@media (prefers-reduced-motion: reduce) { * { animation: none !important } }"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}">\n'
            f"<style>\n{_STYLE}{styles}\n{still}\n</style>\n{elements}\n</svg>\n"
        )


_KINDS = (
    ("bad", r"Killed|kill -9"),
    ("good", r"^audit: "),
    ("command", r"^\$ "),
)
"""Classes of lines, by the first pattern that they match."""


def _wrapped(text: str, width: int) -> list[str]:
    """Returns the rows of a line, broken between words."""
    wrap = TextWrapper(width, drop_whitespace=False, break_on_hyphens=False).wrap
    return [row.removeprefix(" ") for row in wrap(text)] or [""]
