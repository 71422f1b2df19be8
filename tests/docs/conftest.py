"""Fixtures of the pages' blocks: a folder with all that they name, and a server of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs import workplace
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer
from tests.server.transforms.conftest import run, run_each  # noqa: F401 - for tests on pages

import infeed
from infeed_runs.change.amend import AmendOptions, amend


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and definitions, which tests copy."""
    folder = tmp_path_factory.mktemp("filled")
    workplace.fill(folder)
    return folder


@pytest.fixture(scope="session")
def server(
    filled: Path, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InfeedServer]:
    """A server of `pipelines.yaml` in `filled`, where the cursor of a run is saved too."""
    log = tmp_path_factory.mktemp("server") / "log"
    running = InfeedServer(
        "pipelines.yaml", log, http="127.0.0.1:0", cwd=filled, launch=nursery.start
    )
    with running:
        save_run(running.address, filled / "run.json", step=4000)
        run, definition = str(filled / "run.json"), str(filled / "pipelines.yaml")
        amended = amend(run, 4000, definition, options=AmendOptions(seed=18))
        (filled / "amended.json").write_text(json.dumps(amended.to_json()))
        yield running


@pytest.fixture
def folder(filled: Path, server: InfeedServer, tmp_path: Path) -> Path:
    """A copy of `filled` with the cursor of a run, as the working directory of one block."""
    del server  # has written the cursor

    def link_data(source: str, copy: str) -> None:
        # Not the definitions, which tests overwrite.
        (os.link if "/data/" in source else shutil.copy)(source, copy)

    copy = tmp_path / "work"
    return Path(shutil.copytree(filled, copy, symlinks=True, copy_function=link_data))


def save_run(address: str, file: Path, step: int, ranks: int = 1) -> None:
    """Writes the cursor of a run of the pipeline `photos` at a step."""
    with infeed.connect(address, "photos", shard=infeed.Shard(0, ranks)) as feed:
        cursor = feed.state()
        cursor["position"] = step * feed.spec.batch_size * ranks
    file.write_text(json.dumps(cursor))


@pytest.fixture(scope="session")
def service(
    filled: Path, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InfeedServer]:
    """A server of `pipelines.yaml` that has a data service of TensorFlow."""
    log = tmp_path_factory.mktemp("service") / "log"
    options = ("--engine", "tf-data-service", "--workers", "1")
    with InfeedServer("pipelines.yaml", log, *options, cwd=filled, launch=nursery.start) as running:
        yield running
