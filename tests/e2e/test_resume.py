"""Reproducibility and resume: a batch is a pure function of fingerprint, seed and position."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import infeed

# A new trainer process: connects with each saved cursor, and prints the digests of the rest.
REST = """
import hashlib, json, sys, infeed
for state in json.loads(sys.argv[2]):
    rest = []
    with infeed.connect(sys.argv[1], "photos", epochs=1, remainder="pad", state=state) as feed:
        for batch in feed:
            h = hashlib.sha256(repr(batch.sample_ids.tolist()).encode())
            for name in sorted(batch):
                h.update(batch[name].tobytes())
            rest.append(h.hexdigest())
    print(json.dumps(rest))
"""


def digest(batch: infeed.Batch) -> str:
    result = hashlib.sha256(repr(batch.sample_ids.tolist()).encode())
    for name in sorted(batch):
        result.update(batch[name].tobytes())
    return result.hexdigest()


@pytest.fixture(scope="module")
def definition(few_photos: SimpleNamespace) -> str:
    return f"""
pipelines:
  photos:
    source: {{images: {few_photos.folder}, labels: {few_photos.folder}/labels.csv}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [24, 24]}}
      - random_flip_left_right: {{field: image}}
      - random_hue: {{field: image, max_delta: 0.1}}
    batch: {{size: 8}}
"""


def read_epoch(address: str, **options: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the digest of each batch of one epoch, and the cursor before each and at the end."""
    digests, states = [], []
    with infeed.connect(address, "photos", epochs=1, remainder="pad", **options) as feed:
        states.append(feed.state())
        for batch in feed:
            digests.append(digest(batch))
            states.append(feed.state())
    return digests, states


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    (folder / "rest.py").write_text(REST)
    return folder


def test_feed_and_new_trainers_go_on_at_a_restarted_server(
    command_line: Any, definition: str, folder: Path
) -> None:
    server = command_line.serve(definition, folder)
    expected, states = read_epoch(server.address)
    assert len(expected) == len(set(expected)) == 8
    with infeed.connect(
        server.address, "photos", epochs=1, remainder="pad", prefetch_bytes=0
    ) as feed:
        digests = [digest(next(feed)) for _ in range(2)]
        server.kill()
        restarted = command_line.serve(definition, folder, server.address)
        digests += [digest(batch) for batch in feed]
        assert feed.stats().reconnects >= 1
    assert digests == expected
    other, _ = read_epoch(restarted.address, seed=18)
    assert not set(expected) & set(other)
    # A trainer that begins with the cursor of any step.
    assert len(states) == len(digests) + 1
    assert max(len(json.dumps(state)) for state in states) < 500
    words = ("python", "rest.py", restarted.address, json.dumps(states))
    resumed = command_line.run(*words, cwd=folder)
    assert resumed.status == 0, resumed.stderr
    rests = [json.loads(line) for line in resumed.stdout.splitlines()]
    assert rests == [digests[step:] for step in range(len(states))]
    restarted.kill()
