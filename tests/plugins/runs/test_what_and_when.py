"""`infeed what` and `infeed when` on a server of pictures, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.harness.pictures import encode
from typer.testing import CliRunner

import infeed
from infeed.cli import new_app

COUNT = 30

PIPELINES = """
pipelines:
  photos:
    source: {{images: {folder}, labels: folders}}
    shuffle: {{seed: 11}}
    transforms:
      - decode_image: {{field: image}}
      - random_crop: {{field: image, size: [16, 16]}}
      - random_flip_left_right: {{field: image}}
    batch: {{size: 4}}
"""


@pytest.fixture
def address(serve: Any, tmp_path: Path) -> str:
    for number in range(COUNT):
        file = tmp_path / "photos" / ("cat" if number < 20 else "dog") / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full((24, 32, 3), 8 * number, np.uint8)
        pixels[:, 16:] = 255 - 8 * number
        file.write_bytes(encode("PNG", pixels))
    return str(serve(PIPELINES.format(folder=tmp_path / "photos")).address)


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(new_app(), [*arguments, "--timeout", "120"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_step_is_shown_with_its_pictures_and_found_again(address: str, tmp_path: Path) -> None:
    with infeed.connect(address, "photos", shard=infeed.Shard(1, 2), batch_size=3) as feed:
        batches = [next(feed) for _ in range(8)]
        state = feed.state()
    file = tmp_path / "run.json"
    file.write_text(json.dumps(state))
    sizes = ["--world-size", "2", "--batch-size", "3"]
    png = tmp_path / "seen.png"
    asked = ["what", address, str(file), "--step", "6", "--rank", "1", *sizes]
    document = json.loads(run(*asked, "--json", "--png", str(png)))
    slots = document["slots"]
    assert [slot["sample_id"] for slot in slots] == batches[6].sample_ids.tolist()
    assert [slot["position"] for slot in slots] == [39, 40, 41]
    assert [slot["fields"]["label"] for slot in slots] == batches[6]["label"].tolist()
    assert all(len(slot["key"]) == 32 and slot["file"].endswith(".png") for slot in slots)
    for slot, image in zip(slots, batches[6]["image"], strict=True):
        crop, flip = slot["draws"].values()
        pixels = np.asarray(Image.open(slot["file"]))
        part = pixels[crop["y"] : crop["y"] + 16, crop["x"] : crop["x"] + 16]
        assert np.array_equal(part[:, ::-1] if flip["flipped"] else part, image)
    with Image.open(png) as sheet:
        assert sheet.format == "PNG"
    text = run(*asked, "--slot", "2")
    assert f"{slots[2]['sample_id']}" in text
    assert "random_flip_left_right: flipped=" in text

    name = "/".join(Path(slots[0]["file"]).parts[-2:])
    for sample in (str(slots[0]["sample_id"]), name):
        found = json.loads(run("when", address, str(file), sample, *sizes, "--json"))
        assert (found["epochs"], found["more"], len(found["samples"])) == (3, False, 1)
        visits = found["samples"][0]["visits"]
        assert [visit["epoch"] for visit in visits] == [0, 1, 2]
        (visit,) = [visit for visit in visits if visit["position"] == slots[0]["position"]]
        assert (visit["step"], visit["rank"], visit["slot"]) == (6, 1, 0)
        assert [visit["is_past"] for visit in visits] == [
            visit["position"] < state["position"] for visit in visits
        ]
    assert "to come" in run("when", address, "photos@5", "label:dog", "--epochs", "1")
