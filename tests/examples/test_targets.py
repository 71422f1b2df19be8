"""Tests of the trainings on boxes and masks: from `infeed init` to a loss that falls."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image, ImageDraw
from tests.examples.test_training_scripts import losses, start

from infeed_tools.init.detect import starter_for

PHOTOS = 32
COLOURS = ("red", "cyan")


@pytest.fixture(scope="module")
def data(photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos with red rectangles and cyan discs: as COCO in `coco`, as masks in `pets`."""
    root = tmp_path_factory.mktemp("targets")
    for folder in ("coco/train", "pets/images", "pets/masks"):
        (root / folder).mkdir(parents=True)
    images, annotations = [], []
    for number, name in enumerate(sorted(photos.labels)[:PHOTOS]):
        with Image.open(photos.folder / name) as opened:
            photo = opened.convert("RGB").resize((192, 192))
        mask = Image.new("L", photo.size)
        for label, colour in enumerate(COLOURS):
            x, y, side = number * 37 % 120, (number * 53 + 96 * label) % 120, 40 + number % 3 * 12
            box = [x, y, x + side, y + side]
            shape = "rectangle" if label == 0 else "ellipse"
            getattr(ImageDraw.Draw(photo), shape)(box, fill=colour)
            getattr(ImageDraw.Draw(mask), shape)(box, fill=label + 1)
            annotations.append(
                {"id": len(annotations), "image_id": number, "category_id": 10 * label + 1}
                | {"bbox": [x, y, side + 1, side + 1]}
            )
        file = f"{number:03d}.jpg"
        images.append({"id": number, "file_name": file})
        photo.save(root / "coco/train" / file, quality=92)
        photo.save(root / "pets/images" / file, quality=92)
        mask.save(root / "pets/masks" / f"{number:03d}.png")
    categories = [{"id": 10 * label + 1, "name": name} for label, name in enumerate(COLOURS)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "coco/train.json").write_text(json.dumps(content))
    return root


@pytest.mark.parametrize(("kind", "classes"), [("coco", 2), ("pets", 3)])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_loss_falls(serve: Any, data: Path, framework: str, kind: str, classes: int) -> None:
    pytest.importorskip(framework)
    starter = starter_for(str(data / kind), data)
    (data / "pipelines.yaml").write_text(starter.text("infeed init", "pipelines.yaml"))
    (name,) = starter.drafts
    server = serve((data / "pipelines.yaml").read_text().replace(f"{kind}/", f"{data}/{kind}/"))
    arguments = ("--classes", str(classes), "--steps", "30")
    output, _ = start(
        f"{framework}_targets", str(server.address), *arguments, pipeline=name
    ).communicate()
    found = [float(loss) for loss in losses(output)]
    assert len(found) == 30, output
    assert sum(found[-5:]) < 0.6 * sum(found[:5]), found
