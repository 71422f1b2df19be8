"""The gallery: its page is what the tool would write, and each pipeline has the fields it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.harness.nursery import Nursery
from tests.harness.object_server import ObjectServer
from tests.harness.server import InfeedServer
from tools.gallery.entries import ENTRIES, Entry
from tools.gallery.page import IMAGES, PAGE, page, read_shown
from tools.gallery.prepare import prepare, store_environment

import infeed


def test_page_is_written_from_what_was_seen() -> None:
    assert PAGE.read_text() == page(), "run python -m tools.gallery --page"


def test_pictures_are_those_of_the_page() -> None:
    _, shown = read_shown()
    assert {path.stem for path in IMAGES.iterdir()} == {
        name for name, one in shown.items() if one.has_picture
    }


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.file)
def test_pipeline_has_the_fields_of_the_page(
    entry: Entry, nursery: Nursery, tmp_path: Path
) -> None:
    with ObjectServer() as store:
        pipeline = prepare(entry, tmp_path, store)

        def launch(arguments: Any, log: Path, cwd: Path) -> Any:
            return nursery.start(arguments, log, cwd, store_environment(store.url))

        definition, log = f"{entry.file}.yaml", tmp_path / "log"
        with (
            InfeedServer(definition, log, *entry.options, cwd=tmp_path, launch=launch) as server,
            infeed.connect(server.address, pipeline) as feed,
        ):
            batch = next(feed)
            _, shown = read_shown()
            assert {f.name: f"{f.data_type}{[*f.shape]}" for f in feed.spec.element_spec} == (
                shown[entry.file].fields
            )
            assert all(len(array) == batch.slots for array in batch.values())
