"""The program `python -m tools.gallery`: serves each pipeline, takes a picture, measures its rate,
and writes docs/gallery.md. With `--page` it writes only the page, from earlier measurements."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from tests.harness.object_server import ObjectServer
from tests.harness.server import InfeedServer
from tools.gallery.entries import ENTRIES, Entry
from tools.gallery.page import IMAGES, PAGE, Shown, machine, page, write_shown
from tools.gallery.prepare import prepare, store_environment

import infeed

WIDTH = 912
"""Pixels of a picture on the page."""

SECONDS = 5.0
"""Time in which samples are counted."""


@contextmanager
def stored() -> Iterator[ObjectServer]:
    """Runs an object store that the environment names."""
    with ObjectServer() as store:
        os.environ |= store_environment(store.url)
        yield store


def show(entry: Entry, folder: Path, store: ObjectServer) -> Shown:
    """Serves a pipeline, writes its picture, and returns what was seen."""
    pipeline = prepare(entry, folder, store)
    definition, log = f"{entry.file}.yaml", folder / "log"
    with InfeedServer(definition, log, *entry.options, cwd=folder) as server:
        with infeed.connect(server.address, pipeline) as feed:
            fields = {f.name: f"{f.data_type}{[*f.shape]}" for f in feed.spec.element_spec}
            rate = samples_per_second(feed)
        sheet = folder / "sheet.png"
        command = [sys.executable, "-m", "infeed", "peek", server.address, pipeline]
        command += ["--batch-size", "8"] * (not feed.spec.batch_stride)
        peek = subprocess.run(  # noqa: S603 - infeed itself
            [*command, "--png", sheet], capture_output=True, check=False
        )
    if peek.returncode:
        return Shown(fields, rate, has_picture=False)
    with Image.open(sheet) as image:
        height = image.height * WIDTH // image.width
        image.convert("RGB").resize((WIDTH, height)).save(IMAGES / f"{entry.file}.webp", quality=60)
    return Shown(fields, rate, has_picture=True)


def samples_per_second(feed: infeed.Feed) -> float:
    """Returns the rate of a feed, without its first second."""
    count, start = 0, time.monotonic() + 1
    for batch in feed:
        now = time.monotonic()
        if now > start + SECONDS:
            return count / (now - start)
        count += int(batch.mask.sum()) * (now > start)
    raise RuntimeError("the feed has ended")


def main() -> None:
    if sys.argv[1:] not in ([], ["--page"]):
        sys.exit("usage: python -m tools.gallery [--page]")
    if not sys.argv[1:]:
        shutil.rmtree(IMAGES, ignore_errors=True)
        IMAGES.mkdir(parents=True)
        shown = {}
        with stored() as store:
            for entry in ENTRIES:
                with tempfile.TemporaryDirectory() as folder:
                    shown[entry.file] = show(entry, Path(folder), store)
                print(f"{entry.title}: {shown[entry.file].rate:,.0f} samples/s", flush=True)
        write_shown(machine(), shown)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
