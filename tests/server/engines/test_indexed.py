"""The indexed engine through a real server: exactness, bad samples, many streams."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed_server import Pipeline
from infeed_server.engines import indexed, ward
from infeed_server.pipeline.load import parse

N = 40


def numbers(**options: Any) -> Pipeline:
    """A pipeline whose sample i is [i, i] (and passes the graph, for the map)."""

    def double(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**sample, "twice": sample["x"] * 2}

    arrays = {"x": np.arange(N, dtype=np.int64)}
    defaults = {
        "source": {"arrays": arrays},
        "shuffle": {"seed": 5},
        "transforms": [{"map": {"function": double}}],
        "batch": {"size": 4},
    }
    return parse({**defaults, **options})


@pytest.fixture(scope="module")
def server(shared: Any) -> Any:
    """Which any test may read."""
    return shared({"numbers": numbers()})


def test_two_epochs_are_exact_and_ordered_anew(server: Any) -> None:
    with infeed.connect(str(server.address), "numbers", epochs=2) as feed:
        batches = list(feed)
    assert [batch.start for batch in batches] == list(range(0, 2 * N, 4))
    ids = np.concatenate([batch.sample_ids for batch in batches])
    assert sorted(ids[:N]) == sorted(ids[N:]) == list(range(N))
    assert not np.array_equal(ids[:N], ids[N:])
    for batch in batches:
        assert np.array_equal(batch["x"], batch.sample_ids)
        assert np.array_equal(batch["twice"], batch["x"] * 2)
        assert batch.mask.all()


def test_padding_is_zero_and_masked(server: Any) -> None:
    feeds = [
        infeed.connect(
            str(server.address),
            "numbers",
            batch_size=7,
            shard=infeed.Shard(rank, 2),
            epochs=1,
            remainder="pad",
        )
        for rank in range(2)
    ]
    batches = [batch for feed in feeds for batch in feed]
    for feed in feeds:
        feed.close()
    assert len(batches) == 6
    seen = np.concatenate([batch.sample_ids[batch.mask] for batch in batches])
    assert sorted(seen) == list(range(N))
    for batch in batches:
        assert batch["twice"].shape == (7,)
        assert (batch.sample_ids[~batch.mask] == -1).all()
        assert (batch["twice"][~batch.mask] == 0).all()


def test_streams_of_different_sizes_share_the_server(server: Any) -> None:
    results: dict[int, list[int]] = {}

    def read(size: int) -> None:
        with infeed.connect(
            str(server.address), "numbers", batch_size=size, epochs=1, remainder="pad"
        ) as feed:
            results[size] = [int(i) for batch in feed for i in batch.sample_ids[batch.mask]]

    threads = [threading.Thread(target=read, args=(size,)) for size in (1, 3, 4, 7, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    expected = results[1]
    assert sorted(expected) == list(range(N))
    assert all(ids == expected for ids in results.values())


def broken(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """A user's function that cannot do with samples 3, 17 and 18."""

    def check(x: tf.Tensor) -> int:
        if int(x) in (3, 17, 18):
            raise KeyError(f"no entry for {int(x)}")
        return int(x) * 10

    value = tf.py_function(check, [sample["x"]], tf.int64)
    return {"x": sample["x"], "y": tf.ensure_shape(value, [])}


BROKEN = [{"map": {"function": broken}}]


def test_raise_names_the_sample_with_the_users_traceback(serve: Any, tmp_path: Path) -> None:
    log = str(tmp_path / "bad.jsonl")
    server = serve({"n": numbers(transforms=BROKEN, shuffle={"mode": "none"}, quarantine=log)})
    with infeed.connect(str(server.address), "n", batch_size=2) as feed:
        assert feed.next(60)["y"].tolist() == [0, 10]
        with pytest.raises(infeed.UserCodeError) as caught:
            feed.next(60)
    message = str(caught.value)
    assert "sample 3" in message
    assert "KeyError: 'no entry for 3'" in message
    assert 'raise KeyError(f"no entry for {int(x)}")' in message
    assert caught.value.metadata["sample_id"] == "3"
    lines = [json.loads(line) for line in Path(log).read_text().splitlines()]
    # Batches that were asked for ahead may have met theirs too.
    assert lines[0]["sample_id"] == "3"
    assert lines[0]["action"] == "raise"


def test_after_a_bad_batch_others_go_on(serve: Any) -> None:
    server = serve({"n": numbers(transforms=BROKEN, shuffle={"mode": "none"})})
    bad = infeed.connect(str(server.address), "n", batch_size=2)
    with bad, pytest.raises(infeed.UserCodeError):
        list(bad)
    with infeed.connect(str(server.address), "n", batch_size=3) as feed:
        assert feed.next(60)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("action", ["substitute", "mask"])
def test_bad_samples_are_replaced_the_same_way_on_every_server(
    serve: Any, tmp_path: Path, action: str
) -> None:
    runs = []
    for number in range(2):
        log = tmp_path / f"bad-{number}.jsonl"
        server = serve({"n": numbers(transforms=BROKEN, on_error=action, quarantine=str(log))})
        with infeed.connect(str(server.address), "n", batch_size=5, epochs=2) as feed:
            # The second server meets epoch 1 first: what it knows must not matter.
            batches = list(feed) if number == 0 else _backwards(server, action)
        runs.append({batch.start: batch for batch in batches})
        logged = [json.loads(line)["sample_id"] for line in log.read_text().splitlines()]
        assert sorted(logged) == ["17", "18", "3"]
    for start, batch in runs[0].items():
        other = runs[1][start]
        assert np.array_equal(batch.sample_ids, other.sample_ids)
        assert np.array_equal(batch["y"], other["y"])
        assert np.array_equal(batch.mask, other.mask)
        assert np.array_equal(batch["y"][batch.mask], batch["x"][batch.mask] * 10)
    masks = np.concatenate([batch.mask for batch in runs[0].values()])
    assert (~masks).sum() == (6 if action == "mask" else 0)
    ids = np.concatenate([batch.sample_ids for batch in runs[0].values()])
    assert not set(ids) & {3, 17, 18}


def _backwards(server: Any, action: str) -> list[infeed.Batch]:
    batches = []
    with infeed.connect(str(server.address), "n", batch_size=5, epochs=2) as feed:
        begin = feed.state()
    for step in reversed(range(2 * N // 5)):
        state = {**begin, "position": step * 5}
        with infeed.connect(str(server.address), "n", batch_size=5, epochs=2, state=state) as feed:
            batches.append(feed.next(60))
    return batches


def test_a_source_without_a_good_sample_ends(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ward, "_MAX_REPLACEMENTS", 9)

    def hopeless(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        bad = tf.debugging.assert_less(sample["x"], tf.constant(0, tf.int64), "never good")
        with tf.control_dependencies([bad] if bad is not None else []):
            return {"x": tf.identity(sample["x"])}

    pipeline = numbers(
        source={"arrays": {"x": np.arange(4)}},
        transforms=[{"map": {"function": hopeless}}],
        on_error="substitute",
        quarantine=str(tmp_path / "bad.jsonl"),
    )
    server = serve({"n": pipeline})
    feed = infeed.connect(str(server.address), "n")
    with feed, pytest.raises(infeed.SampleError, match="no good sample found in 9 draws"):
        feed.next(120)


def test_arrays_without_transforms_need_no_graph(serve: Any) -> None:
    server = serve({"n": numbers(transforms=[])})
    with infeed.connect(str(server.address), "n", epochs=1) as feed:
        ids = [int(i) for batch in feed for i in batch["x"]]
    assert sorted(ids) == list(range(N))


def test_finish_at_the_server_gives_the_same_bits(serve: Any) -> None:
    arrays = {"x": np.arange(N * 3, dtype=np.uint8).reshape(N, 3), "y": np.arange(N) % 5}
    pipeline = numbers(
        source={"arrays": arrays},
        transforms=[
            {"normalize": {"field": "x", "scale": 255.0, "mean": [0.4, 0.5, 0.6], "std": [0.2]}},
            {"one_hot": {"field": "y", "depth": 5}},
        ],
    )
    server = serve({"n": pipeline})
    runs = []
    for finish in ("trainer", "server"):
        with infeed.connect(
            str(server.address), "n", epochs=1, batch_size=7, remainder="pad", finish=finish
        ) as feed:
            assert [field.data_type for field in feed.spec.wire_spec] == ["uint8", "int64"]
            runs.append(list(feed))
    for one, other in zip(*runs, strict=True):
        for name in ("x", "y"):
            assert one[name].dtype == np.float32
            assert one[name].tobytes() == other[name].tobytes()
    assert (runs[0][-1]["x"][~runs[0][-1].mask] == 0).all()


def test_so_many_batch_sizes_at_a_time(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has threads and buffers of its own, and it is peers who choose them."""
    monkeypatch.setattr(indexed, "_MOST_LANES", 2)
    address = str(serve({"numbers": numbers()}).address)

    def feed(size: int) -> infeed.Feed:
        return infeed.connect(address, "numbers", batch_size=size, reconnect_timeout=0.5)

    with feed(4) as one, feed(5) as two:
        assert [len(next(each)["x"]) for each in (one, two)] == [4, 5]
        with (
            feed(6) as third,
            pytest.raises(infeed.ServerUnavailableError, match=r"of 2 sizes already \(4, 5\)"),
        ):
            third.next(timeout=60)
        with feed(5) as another:  # of a size that is in use
            assert len(next(another)["x"]) == 5
        two.close()
        deadline = time.monotonic() + 60
        while True:  # its place is free a moment later
            try:
                with feed(6) as third:
                    assert len(third.next(timeout=60)["x"]) == 6
                break
            except infeed.ServerUnavailableError:
                assert time.monotonic() < deadline
