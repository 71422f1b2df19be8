"""The page of the gallery, from what was seen of each pipeline."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from tools.gallery.entries import ENTRIES, Entry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gallery.md"
IMAGES = PAGE.parent / "images" / "gallery"
SHOWN = Path(__file__).with_name("shown.json")

EXAMPLES = "examples/README.md"
HEAD = """\
# Gallery

This page shows ten pipelines, each with one of its batches. Each is a file in
[examples]({examples}) that reads a folder `data` beside it.
Serve one with `infeed serve examples/class_folders.yaml`, and draw a batch with
`infeed peek 127.0.0.1:7470 pictures --png batch.png`.

The images have 56 x 56 pixels and were drawn by the demo. Rates show only the order of magnitude:
they come from one run, with the trainer on the server's host, {machine}.
[Performance](performance.md) has careful comparisons.
"""


@dataclass(frozen=True)
class Shown:
    """What was seen of a pipeline: its fields, samples/s, and whether a batch has a picture."""

    fields: dict[str, str]
    rate: float
    has_picture: bool


def machine() -> str:
    """Returns the machine and the day, for the page."""
    day = datetime.now(timezone.utc).date()
    return f"measured on {day} with {os.cpu_count()} cores ({platform.machine()})"


def read_shown() -> tuple[str, dict[str, Shown]]:
    """Returns the machine, and what was seen of each pipeline."""
    saved = json.loads(SHOWN.read_text())
    return saved["machine"], {name: Shown(**value) for name, value in saved["shown"].items()}


def write_shown(where: str, shown: Mapping[str, Shown]) -> None:
    saved = {"machine": where, "shown": {name: asdict(one) for name, one in shown.items()}}
    SHOWN.write_text(json.dumps(saved, indent=1) + "\n")


def page() -> str:
    """Returns the page."""
    where, shown = read_shown()
    parts = [
        HEAD.format(machine=where, examples=f"../{EXAMPLES}"),
        *(_section(one, shown[one.file]) for one in ENTRIES),
    ]
    return "\n".join(parts)


def _section(entry: Entry, shown: Shown) -> str:
    fields = ", ".join(f"`{name}` {text}" for name, text in shown.fields.items())
    rate = f"{shown.rate:,.0f} samples/s"
    name = f"{entry.file}.yaml"
    lines = [
        f"## {entry.title}\n",
        entry.text,
        f"[`{name}`](../examples/{name}): {fields}; {rate}. [Reference]({entry.reference})",
    ]
    if shown.has_picture:
        lines.append(f"![A batch of {name}](images/gallery/{entry.file}.webp)")
    return "\n".join(lines) + "\n"
