"""Time to the first batch when resuming at position 10,000,000, compared with starting at 0.

    .venv/bin/python benchmarks/resume.py [FOLDER_OF_IMAGES]

Serves the images from another process, endless and shuffled; without a folder, it draws images.
The two cases take turns; the result is the median of the pairs' ratios.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import infeed
from infeed_tools.demo import shapes
from infeed_tools.demo.run import serving

POSITION = 10_000_000
PAIRS = 15

DEFINITION = """\
pipelines:
  pictures:
    source: {{images: {folder}}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [48, 48]}}
      - random_flip_left_right: {{field: image}}
    batch: {{size: 50}}
"""


def first_batch(target: str, position: int) -> float:
    """Returns the seconds from `connect` to the first batch at a position."""
    with infeed.connect(target, "pictures") as feed:
        cursor = {**feed.state(), "position": position}
    begin = time.perf_counter()
    with infeed.connect(target, "pictures", state=cursor) as feed:
        batch = feed.next(timeout=60)
        seconds = time.perf_counter() - begin
    assert batch.start == position
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(name) / "drawn"
        if len(sys.argv) <= 1:
            list(shapes.write_images(folder, 500, seed=0))
        definition = Path(name) / "pipelines.yaml"
        definition.write_text(DEFINITION.format(folder=folder))
        with serving(definition, Path(name) / "server.log") as target:
            first_batch(target, 0)  # warm-up
            pairs = [(first_batch(target, 0), first_batch(target, POSITION)) for _ in range(PAIRS)]
    for title, values in (
        ("start at 0", [start for start, _ in pairs]),
        (f"resume at {POSITION:,}", [resumed for _, resumed in pairs]),
    ):
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{title:22} median {middle:.4f} s  (min {low:.4f}, max {high:.4f})")
    ratios = [resumed / start for start, resumed in pairs]
    print(f"{'ratio':22} median {statistics.median(ratios):.3f} of {PAIRS} pairs")


if __name__ == "__main__":
    main()
