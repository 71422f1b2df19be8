"""A run of JPEGs that is amended between two steps, by the commands."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import infeed

OLD = """
  old:
    source: {images: first, labels: folders}
    shuffle: {seed: 17}
    transforms: [decode_image: {field: image, channels: 3}, resize: {field: image, size: [8, 8]}]
    batch: {size: 6, remainder: pad}
"""
NEW = OLD.replace("old:", "photos:").replace(
    "    shuffle", "    add: [{images: second, labels: folders}]\n    shuffle"
)


def copy_photos(photos: SimpleNamespace, folder: Path) -> None:
    """Makes two folders, of 40 and of 20 photos."""
    names = sorted(photos.labels)[:60]
    for number, name in enumerate(names):
        to = folder / ("first" if number < 40 else "second") / "a" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photos.folder / name, to)


def read(address: str, pipeline: str, **options: Any) -> tuple[list[list[int]], list[bytes]]:
    """Returns the sample ids and the pixels of each batch."""
    with infeed.connect(address, pipeline, shard=infeed.Shard(), **options) as feed:
        batches = [(b.sample_ids[b.mask].tolist(), b["image"].tobytes()) for b in feed]
        return [ids for ids, _ in batches], [pixels for _, pixels in batches]


def test_photos_are_added_at_an_epoch(
    command_line: Any, photos: SimpleNamespace, tmp_path: Path
) -> None:
    copy_photos(photos, tmp_path)
    server = command_line.serve(f"pipelines:{OLD}", tmp_path)
    before, pixels = read(server.address, "old", steps=(0, 6))
    with infeed.connect(server.address, "old", shard=infeed.Shard()) as feed:
        for _ in range(6):
            next(feed)
        (tmp_path / "run.json").write_text(json.dumps(feed.state()))
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    (tmp_path / "new.yaml").write_text(f"pipelines:{OLD}{NEW}")
    call = ("amend", "run.json", "--from", "6", "new.yaml", "--pipeline", "photos")
    shown = command_line.run(*call, cwd=tmp_path)
    assert "epoch 0 goes on in its order, with 4 samples; it ends at 40" in shown.stdout
    assert "nothing is written" in shown.stdout
    saved = (tmp_path / "run.json").read_text()
    assert json.loads(saved)["pipeline"] == "old"
    command_line.run(*call, "--out", "amended.json", cwd=tmp_path)
    assert (tmp_path / "run.json").read_text() == saved
    server = command_line.serve((tmp_path / "new.yaml").read_text(), tmp_path)
    state = json.loads((tmp_path / "amended.json").read_text())
    rest, _ = read(server.address, "photos", state=state, epochs=2)
    seen = [index for ids in (*before[:6], *rest) for index in ids]
    assert (sorted(seen[:40]), sorted(seen[40:])) == ([*range(40)], [*range(60)])
    # The steps before have the old definition.
    again, old_pixels = read(server.address, "photos", state=state, steps=(0, 6))
    assert (again, old_pixels) == (before[:6], pixels[:6])
    shown = command_line.run(
        *("diff", "run.json", "amended.json", "--pipelines", "new.yaml", "--json"), cwd=tmp_path
    )
    found = json.loads(shown.stdout)
    assert (found["begin"], found["changes"][0]["path"]) == (36, "added samples")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
