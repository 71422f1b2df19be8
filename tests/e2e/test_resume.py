"""The promise: batches are a pure function of fingerprint, seed and position."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import infeed

# What a new trainer process does: connect with the saved cursor, digest what is left.
REST = """
import hashlib, json, sys, infeed
target, state = sys.argv[1], json.loads(sys.argv[2])
with infeed.connect(target, "photos", epochs=1, remainder="pad", state=state) as feed:
    for batch in feed:
        h = hashlib.sha256(repr(batch.sample_ids.tolist()).encode())
        for name in sorted(batch):
            h.update(batch[name].tobytes())
        print(h.hexdigest())
"""


def digest(batch: infeed.Batch) -> str:
    result = hashlib.sha256(repr(batch.sample_ids.tolist()).encode())
    for name in sorted(batch):
        result.update(batch[name].tobytes())
    return result.hexdigest()


@pytest.fixture
def definition(photos: SimpleNamespace) -> str:
    return f"""
pipelines:
  photos:
    source: {{images: {photos.folder}, labels: {photos.folder}/labels.csv}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [24, 24]}}
      - random_flip_left_right: {{field: image}}
      - random_hue: {{field: image, max_delta: 0.1}}
    batch: {{size: 50}}
"""


def epoch(address: str, **options: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """The digest of each batch of one epoch, and the cursor before each and at the end."""
    digests, states = [], []
    with infeed.connect(address, "photos", epochs=1, remainder="pad", **options) as feed:
        states.append(feed.state())
        for batch in feed:
            digests.append(digest(batch))
            states.append(feed.state())
    return digests, states


def test_one_seed_gives_the_same_bits_and_another_seed_others(
    server_process: Any, definition: str
) -> None:
    server = server_process(definition)
    first, _ = epoch(server.address)
    assert epoch(server.address)[0] == first
    assert epoch(server.address, seed=17)[0] == first
    other, _ = epoch(server.address, seed=18)
    assert not set(first) & set(other)


def test_resuming_at_every_step_in_a_new_process_against_a_restarted_server(
    server_process: Any, definition: str
) -> None:
    server = server_process(definition)
    whole, states = epoch(server.address)
    server.kill()
    server = server_process(definition, server.address)
    for step, state in enumerate(states):
        assert len(json.dumps(state)) < 500
        rest = subprocess.run(
            [sys.executable, "-c", REST, server.address, json.dumps(state)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert rest.returncode == 0, rest.stderr
        assert rest.stdout.split() == whole[step:], f"resumed at step {step}"


def test_a_server_that_is_killed_and_restarted_costs_no_batch(
    server_process: Any, definition: str
) -> None:
    server = server_process(definition)
    expected, _ = epoch(server.address)
    with infeed.connect(
        server.address, "photos", epochs=1, remainder="pad", prefetch_bytes=1
    ) as feed:
        digests = [digest(next(feed)) for _ in range(2)]
        server.kill()
        server_process(definition, server.address)
        digests += [digest(batch) for batch in feed]
        assert feed.stats().reconnects >= 1
    assert digests == expected


def test_cursors_of_other_runs_are_refused(server_process: Any, definition: str) -> None:
    server = server_process(definition)
    with infeed.connect(server.address, "photos") as feed:
        state = feed.state()
    for change, words in (
        ({"pipeline": "others"}, "others"),
        ({"fingerprint": "0" * 32}, "fingerprint"),
        ({"seed": 3}, "seed"),
    ):
        with pytest.raises(infeed.CursorError, match=words):
            infeed.connect(server.address, "photos", seed=17, state={**state, **change})
