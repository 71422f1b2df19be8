"""A server in a control group of one core and 2 GiB, with the pipeline of photos."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.harness.control_group import control_group, enter, kills
from tests.harness.process import Process
from tests.harness.server import InfeedServer
from tests.harness.spawned import SpawnedProcess, python_module

import infeed

PIPELINES = """
pipelines:
  photos:
    source: {{images: {folder}, labels: {folder}/labels.csv}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [224, 224]}}
      - random_flip_left_right: {{field: image}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: {slots}}}
"""
BATCHES = 30


@pytest.mark.slow
def test_server_with_one_core_and_2_gib_serves_photos(
    photos: SimpleNamespace, tmp_path: Path
) -> None:
    definition = tmp_path / "pipelines.yaml"
    slots = min(64, photos.count)
    definition.write_text(PIPELINES.format(folder=photos.folder, slots=slots))
    with control_group(1, 2 << 30) as groups:

        def launch(arguments: Sequence[str], log: Path, cwd: Path) -> Process:
            command = shlex.join(python_module("infeed", *arguments))
            return SpawnedProcess(["sh", "-c", f"{enter(groups)}; exec {command}"], log, cwd=cwd)

        with InfeedServer(definition, tmp_path / "server", launch=launch) as server:
            with infeed.connect(server.address, "photos") as feed:
                for _ in range(BATCHES):
                    assert feed.next(timeout=500)["image"].shape == (slots, 224, 224, 3)
            assert "limits: 1 CPU threads, 2.00 GiB of memory" in server.log
            assert "512 MiB of unsent batches" in server.log
        assert kills(groups) == 0
