"""Photos that `infeed pack` has packed, plain and with a short side of 256, beside the files."""

from __future__ import annotations

import subprocess
import tempfile
from itertools import count
from pathlib import Path

from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target
from benchmarks.formats import images_per_second
from benchmarks.photos import photo_folder
from tests.harness.server import InfeedServer
from tests.harness.spawned import python_module

FILES, REDUCED, PLAIN = "files", "short side 256", "plain"

PACKS = {REDUCED: ("--short-side", "256", "--quality", "90"), PLAIN: ()}

PIPELINE = """
  {name}:
    source: {{{source}}}
    shuffle: {{seed: 1}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [224, 224]}}
      - random_flip_left_right: {{field: image}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: 64}}
"""


def compare(plan: Plan) -> list[Finding]:
    """Reads the files and each pack in turn; all stay in the page cache."""
    rates: dict[str, list[float]] = {name: [] for name in (FILES, *PACKS)}
    seeds = count(1)  # so that no batch was made for another feed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with InfeedServer(_write(folder), folder / "log") as server:
            for _ in range(plan.pairs + 1):
                for pipeline, values in rates.items():
                    pace = images_per_second(server.address, pipeline, next(seeds), plan.seconds)
                    values.append(pace)
    files, *packs = (Figures(name, values[1:]) for name, values in rates.items())
    targets = {REDUCED: Target(2.0)}
    return [Finding("images/s, cropped", ours, files, targets.get(ours.name)) for ours in packs]


def _write(folder: Path) -> Path:
    """Packs the photos, and writes the pipelines of all."""
    sources = {FILES: f"images: {photo_folder()}"}
    for name, options in PACKS.items():
        dest = folder / name
        arguments = ("pack", str(photo_folder()), str(dest), *options)
        subprocess.run(python_module("infeed", *arguments), check=True, capture_output=True)
        sources[name] = f'tfrecord: "{dest}/*.tfrecord", features: {{image: bytes}}'
    definition = folder / "pipelines.yaml"
    pipelines = (PIPELINE.format(name=name, source=source) for name, source in sources.items())
    definition.write_text(f"pipelines:{''.join(pipelines)}")
    return definition
