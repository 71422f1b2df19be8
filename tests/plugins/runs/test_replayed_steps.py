"""Steps of an amended run again: the same bytes as when it trained, from a server of both
definitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import infeed
from infeed.cursor import Cursor
from infeed_runs.look.replay import checksum
from infeed_server.order import RunOrder, SampleOrder
from infeed_server.pipeline.lineage import segment_of

SEEDS = {"before": 17, "after": 18}


@pytest.fixture(scope="module")
def address(
    command_line: Any, few_photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    definition = "pipelines:\n"
    for name, hue in (("before", 0.1), ("after", 0.3)):
        definition += f"""
  {name}:
    source: {{images: {few_photos.folder}, labels: {few_photos.folder}/labels.csv}}
    shuffle: {{seed: {SEEDS[name]}}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [24, 24]}}
      - random_hue: {{field: image, max_delta: {hue}}}
    batch: {{size: 3}}
"""
    server = command_line.serve(definition, tmp_path_factory.mktemp("amended"))
    yield server.address
    server.kill()


def amended(before: Any, after: Any, position: int) -> Cursor:
    """Returns the cursor of a run that was amended at a position: two ranks with batches of 3, then
    one with batches of 4."""
    run, segments = RunOrder.of(SampleOrder(before.sample_count, before.seed, "global")), []
    for spec, start, size, ranks in ((before, 0, 3, 2), (after, position, 4, 1)):
        run = run.extended(start, replace(run.last, seed=spec.seed))
        names = {"pipeline": spec.name, "fingerprint": spec.fingerprint}
        step = start // 6
        segments.append(segment_of(run, start, step, batch_size=size, world_size=ranks, **names))
    return Cursor("after", after.fingerprint, after.seed, position, segments=tuple(segments))


def test_steps_of_both_parts_are_bit_identical(
    address: str, command_line: Any, tmp_path: Path
) -> None:
    ranks = [infeed.connect(address, "before", shard=infeed.Shard(rank, 2)) for rank in range(2)]
    steps = [[next(feed) for feed in ranks] for _ in range(2)]
    trained = [[checksum(batch) for batch in step] for step in steps]
    seen = [(0, i) for step in steps for batch in step for i in batch.sample_ids.tolist()]
    for feed in ranks:
        feed.close()
    with infeed.connect(address, "after", shard=infeed.Shard()) as other:
        state = amended(ranks[0].spec, other.spec, 12).to_json()
    connect = partial(infeed.connect, address, "after", shard=infeed.Shard())
    with connect(state=state, batch_size=4, epochs=3) as feed:
        assert feed.first_step == 2
        for batch in feed:
            trained.append([checksum(batch)])
            seen += [(batch.epoch, i) for i in batch.sample_ids.tolist()]
            if feed.first_step + feed.delivered == 6:
                state = json.loads(json.dumps(feed.state()))
        last = feed.state()
    # Three epochs of 60: each sample once in each.
    assert sorted(seen) == [(epoch, sample) for epoch in range(3) for sample in range(60)]
    assert last["position"] == len(seen)

    # A resume in the middle, with another world size.
    with connect(state=state, batch_size=4, epochs=3) as feed:
        assert feed.first_step == 6
        assert [checksum(batch) for batch in feed] == [one for (one,) in trained[6:]]
    pairs = [
        infeed.connect(address, "after", state=state, batch_size=2, shard=infeed.Shard(rank, 2))
        for rank in range(2)
    ]
    with infeed.connect(address, "after", state=state, steps=(6, 7)) as feed:
        ids = feed.next().sample_ids.tolist()
    assert [i for feed in pairs for i in feed.next().sample_ids.tolist()] == ids
    for feed in pairs:
        feed.close()

    # Steps again, of both parts and over both.
    for rank in range(2):
        shard = infeed.Shard(rank, 2)
        with infeed.connect(address, "after", state=last, steps=(0, 2), shard=shard) as feed:
            assert [checksum(batch) for batch in feed] == [step[rank] for step in trained[:2]]
    run = tmp_path / "run.json"
    run.write_text(json.dumps(last))
    arguments = ("replay", address, str(run), "--steps", f"1:{len(trained)}", "--json")
    replayed = command_line.run(*arguments, cwd=tmp_path)
    assert [d["checksum"] for d in json.loads(replayed.stdout)] == [step[0] for step in trained[1:]]
    with pytest.raises(infeed.CursorError, match="lies before its last segment"):
        connect(state={**last, "position": 11})
