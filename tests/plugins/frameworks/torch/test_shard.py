"""Tests of the default shard, which `torch.distributed` has at the first batch."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.plugins.frameworks.torch.fakes import STEPS, fake, ids, passes

import infeed
from infeed.torch import FeedDataset, connect


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    # Another test's Accelerator stays in this process.
    monkeypatch.delitem(sys.modules, "accelerate.state", raising=False)


@pytest.fixture
def initialize(monkeypatch: pytest.MonkeyPatch) -> Any:
    def initialize(rank: int, world_size: int) -> None:
        monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
        monkeypatch.setattr("torch.distributed.get_rank", lambda: rank)
        monkeypatch.setattr("torch.distributed.get_world_size", lambda: world_size)

    return initialize


@pytest.fixture
def destroy(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda: monkeypatch.setattr("torch.distributed.is_initialized", lambda: False)


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), "epochs": 1, **options})


def rank_batches(rank: int, count: int = 1) -> list[Any]:
    return passes(count, shard=infeed.Shard(rank, 2))


def test_shard_is_that_of_the_process_group(initialize: Any) -> None:
    initialize(1, 4)
    with connect("fake", "fake", transport=fake()) as feed:
        assert feed.feed.shard == infeed.Shard(1, 4)


def test_shard_that_was_given_wins(initialize: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    shard = infeed.Shard(0, 2)
    with (
        connect("fake", "fake", transport=fake(), shard=shard) as feed,
        dataset(shard=shard) as own,
    ):
        assert len(own) == STEPS // 2
        initialize(1, 4)
        next(feed)
        assert feed.feed.shard == shard
        assert [ids(own)] == rank_batches(0)


def test_group_after_the_dataset_was_made_gives_the_shard(initialize: Any) -> None:
    with dataset() as data:
        iter(data)
        data.load_state_dict(data.state_dict())
        initialize(1, 2)
        assert [ids(data), ids(data)] == rank_batches(1, 2)


@pytest.mark.parametrize("names", ["WORLD_SIZE", "RANK WORLD_SIZE", "PMI_RANK PMI_SIZE"])
@pytest.mark.parametrize("opened", ["dataset", "connect"])
def test_first_batch_of_several_processes_needs_a_group(
    opened: str, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in names.split():
        monkeypatch.setenv(name, "2")
    connecting = partial(connect, "fake", "fake", transport=fake())
    use = dataset().__next__ if opened == "dataset" else connecting
    with pytest.raises(infeed.InvalidRequestError, match=r"_SIZE=2.*give shard="):
        use()


@pytest.mark.parametrize("value", ["1", "", "x"])
def test_environment_of_one_process_needs_no_group(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", value)
    with dataset() as data:
        assert [ids(data)] == passes(1)


def test_length_before_the_group_is_that_of_the_environment(
    initialize: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    transport = fake()
    with dataset(transport=transport) as data:
        assert len(data) == STEPS // 2
        assert transport.streams == 0
        initialize(1, 2)
        assert len(data) == STEPS // 2
        assert [ids(data)] == rank_batches(1)


@pytest.mark.parametrize("opened", ["dataset", "connect"])
def test_group_after_the_first_batch_is_refused(opened: str, initialize: Any) -> None:
    data = dataset() if opened == "dataset" else connect("fake", "fake", transport=fake())
    with data:
        next(iter(data))
        initialize(1, 2)
        with pytest.raises(infeed.InvalidRequestError, match=r"has since made this process Shard"):
            next(data)


def test_group_that_was_destroyed_leaves_the_shard(initialize: Any, destroy: Any) -> None:
    with dataset() as data:
        initialize(1, 2)
        first = ids(data)
        destroy()
        assert len(data) == STEPS // 2
        assert [first, ids(data)] == rank_batches(1, 2)
