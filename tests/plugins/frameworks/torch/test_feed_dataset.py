"""Tests of the iterable dataset: its passes, states and processes."""

from __future__ import annotations

import json
import pickle
from itertools import chain
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.plugins.frameworks.torch.fakes import (  # noqa: E402
    COUNT,
    EVALUATION,
    STEPS,
    fake,
    ids,
    passes,
    stream,
)
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

import infeed  # noqa: E402
from infeed.run import Run  # noqa: E402
from infeed.torch import FeedDataset  # noqa: E402
from infeed_frameworks.torch import passes as passes_module  # noqa: E402


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), **options})


def test_nothing_connects_before_the_first_batch() -> None:
    transport = fake()
    with dataset(transport=transport) as data:
        assert isinstance(data, IterableDataset)
        iterator = iter(data)
        data.load_state_dict(data.state_dict())
        data.set_epoch(1)
        assert data
        assert transport.streams == 0
        next(iterator)
        assert transport.streams == 1


def test_two_iterators_are_one_stream() -> None:
    with dataset() as data:
        first = iter(data)
        given = [next(first)]
        second = iter(data)
        given += [next(second), next(first), next(second)]
        assert ids(given) == stream(4)


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_each_iteration_is_the_next_epoch(remainder: Any) -> None:
    with dataset(epochs=1, remainder=remainder, mask="valid") as data:
        assert [ids(data) for _ in range(3)] == passes(3, remainder=remainder)
    assert passes(2)[0] != passes(2)[1]


@pytest.mark.parametrize("sets_epoch", [False, True])
@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_state_tells_the_steps_of_every_pass(remainder: Any, sets_epoch: bool) -> None:
    expected = list(chain.from_iterable(passes(3, remainder=remainder)))
    with dataset(epochs=1, remainder=remainder) as data:
        for epoch in range(2):
            if sets_epoch:
                data.set_epoch(epoch)
            list(data)
            run = Run.of(data.state_dict()["cursor"])
            assert heads(run, 3) == [batch[:2] for batch in expected]
    # The passes before a chosen one count as taken, until one was begun.
    with dataset(epochs=1, remainder=remainder) as data:
        data.set_epoch(1)
        next(data)
        run = Run.of(data.state_dict()["cursor"])
        assert heads(run, 3) == [batch[:2] for batch in expected]
        data.set_epoch(2)
        steps = len(expected) // 3 + 1
        run = Run.of(data.state_dict()["cursor"])
        assert run.part_of(steps, 4).position(steps) == 2 * COUNT
        with pytest.raises(infeed.InvalidRequestError, match="passes changed"):
            run.part_of(steps - 1, 4)


def heads(run: Run, count: int) -> list[list[float]]:
    """Returns the first two ids of each step of a number of passes."""
    steps = count * (run.part_of(0, 4).end_step or 0)
    starts = [run.part_of(step, 4).position(step) for step in range(steps)]
    return [fake().sample_ids(3, start, 2).tolist() for start in starts]


def test_pass_of_several_epochs_is_one_stream() -> None:
    with dataset(epochs=2) as data:
        assert ids(data) == stream(COUNT // 2)
        second = ids(data)
    assert len(second) == COUNT // 2
    assert sorted(chain.from_iterable(second)) == sorted([*range(COUNT)] * 2)


def test_pass_that_was_left_is_continued() -> None:
    with dataset(epochs=1) as data:
        for _ in data:
            break
        assert ids(data) == passes(1)[0][1:]
        assert ids(data) == passes(2)[1]


def test_restart_repeats_the_pass() -> None:
    with dataset(epochs=1, restart=True) as data:
        for _ in data:
            break
        assert [ids(data) for _ in range(2)] == [EVALUATION] * 2


@pytest.mark.parametrize("way", ["state", "load_state_dict"])
def test_restart_continues_at_a_state_once(way: str) -> None:
    with dataset(epochs=1, restart=True) as data:
        next(iter(data))
        state = data.state_dict()
    with at_state(way, state, restart=True) as data:
        assert [ids(data) for _ in range(2)] == [EVALUATION[1:], EVALUATION]


def at_state(way: str, state: Any, **options: Any) -> FeedDataset:
    """Returns a dataset with a state that was given in one of the two ways."""
    if way == "state":
        return dataset(epochs=1, state=state, **options)
    data = dataset(epochs=1, **options)
    data.load_state_dict(state)
    return data


def test_copy_of_an_interrupted_evaluation_has_every_sample() -> None:
    with dataset(epochs=1, restart=True) as data:
        next(iter(data))
        copy = copied(data)
    with copy:
        assert [ids(copy) for _ in range(2)] == [EVALUATION] * 2


def copied(data: FeedDataset) -> FeedDataset:
    """Returns a copy as in a spawned process."""
    options, data._passes.options = data._passes.options, {}  # the fake's lock cannot be pickled
    copy: FeedDataset = pickle.loads(pickle.dumps(data))
    data._passes.options = options
    copy._passes.options = {**options, "transport": fake()}
    return copy


@pytest.mark.parametrize("step", range(2 * STEPS + 1))
def test_state_continues_with_every_later_pass(step: int) -> None:
    """After a finished pass, the next iteration is the next pass."""
    way = ("state", "load_state_dict")[step % 2]
    expected = passes(4)
    with dataset(epochs=1) as data:
        for _ in range(step // STEPS):
            list(data)
        iterator = iter(data)
        for _ in range(step % STEPS):
            next(iterator)
        state = json.loads(json.dumps(data.state_dict()))
    with at_state(way, state) as data:
        rest = expected[step // STEPS][step % STEPS :]
        assert [ids(data) for _ in range(2)] == [rest, expected[step // STEPS + 1]]


def test_state_of_a_finished_pass_ends_it_before_iter() -> None:
    with dataset(epochs=1) as data:
        list(data)
        state = data.state_dict()
        data.load_state_dict(state)
        assert next(data, None) is None
        assert ids(data) == passes(2)[1]
        data.load_state_dict(state)
        assert ids(data) == passes(2)[1]


@pytest.mark.parametrize("step", [1, STEPS + 2])
def test_cursor_of_a_numpy_feed_is_a_state(step: int) -> None:
    with infeed.connect("fake", "fake", transport=fake()) as feed:
        for _ in range(step):
            next(feed)
        cursor = feed.state()
    with dataset(epochs=1) as data:
        data.load_state_dict(cursor)
        rest = ids(data)
        assert rest == stream(2 * STEPS + 1)[step:][: len(rest)]
        # The last slots of the epoch fill no batch.
        assert len(rest) == (COUNT - cursor["position"] % COUNT) // 4
        assert ids(data) == passes(step // STEPS + 2)[-1]


@pytest.mark.parametrize(("remainder", "steps"), [("drop", STEPS), ("pad", STEPS + 1)])
def test_length_is_that_of_the_whole_pass_at_each_state(remainder: Any, steps: int) -> None:
    with dataset(epochs=1, remainder=remainder) as data:
        assert len(data) == steps
        for _ in range(2):
            for _ in data:
                assert len(data) == steps
                with dataset(epochs=1, remainder=remainder) as other:
                    other.load_state_dict(data.state_dict())
                    assert len(other) == steps
        assert len(DataLoader(data, batch_size=None)) == steps


@pytest.mark.parametrize("size", [3, 4, 5])
def test_a_state_tells_the_pass_and_its_length_for_another_batch_size(size: int) -> None:
    with dataset(epochs=1) as data:
        assert data.epoch == 0
        for number in range(2):
            for step, _ in enumerate(data, 1):
                with dataset(epochs=1, batch_size=size, state=data.state_dict()) as other:
                    is_over = COUNT - 4 * step < size
                    assert (other.epoch, len(other)) == (number + is_over, COUNT // size)
                    assert sum(1 for _ in other) == (COUNT - 4 * step * (not is_over)) // size
            assert data.epoch == number + 1
    with dataset() as data, pytest.raises(infeed.InvalidRequestError, match="only with epochs="):
        _ = data.epoch


def test_second_pass_of_unknown_length_is_refused() -> None:
    with dataset(epochs=1, transport=fake(length_known=False)) as data:
        assert ids(data) == passes(1)[0]
        with pytest.raises(infeed.FeedClosedError, match="or give restart=True"):
            list(data)
    with dataset(epochs=1, transport=fake(length_known=False), restart=True) as data:
        assert [ids(data) for _ in range(2)] == [EVALUATION] * 2


@pytest.mark.parametrize("order", ["set, iter", "iter, set"])
def test_new_dataset_begins_with_the_pass_of_its_epoch(order: str) -> None:
    with dataset(epochs=1) as data:
        for step in order.split(", "):
            data.set_epoch(2) if step == "set" else iter(data)
        assert len(data) == STEPS
        assert ids(rest(data)) == passes(3)[2]
        assert ids(data) == passes(4)[3]


def rest(data: FeedDataset) -> Any:
    """Yields what is left, without a call of `iter`."""
    while (batch := next(data, None)) is not None:
        yield batch


def test_epoch_of_an_unfinished_pass_continues_it() -> None:
    with dataset(epochs=1) as data:
        for epoch, begin in ((0, 0), (0, 1), (1, 0), (3, 0)):
            data.set_epoch(epoch)
            assert ids([next(iter(data))]) == [passes(4)[epoch][begin]]
        assert ids(data) == passes(4)[3][1:]


@pytest.mark.parametrize("epoch", [0, 1])
def test_epoch_of_a_finished_pass_repeats_it(epoch: int) -> None:
    with dataset(epochs=1) as data:
        assert [ids(data), ids(data)] == passes(2)
        data.set_epoch(epoch)
        assert ids(data) == passes(2)[epoch]


@pytest.mark.parametrize("begun", [False, True])
def test_state_after_set_epoch_is_that_of_the_pass(begun: bool) -> None:
    with dataset(epochs=1) as data:
        if begun:
            next(iter(data))
        data.set_epoch(2)
        iter(data)
        state = data.state_dict()
    with dataset(epochs=1) as data:
        data.load_state_dict(state)
        assert ids(data) == passes(3)[2]


def test_epoch_after_a_state_has_no_effect() -> None:
    with dataset(epochs=1) as data:
        list(data)
        next(iter(data))
        state = data.state_dict()
    for given in (dataset(epochs=1, state=state), dataset(epochs=1)):
        with given:
            given.load_state_dict(state)
            given.set_epoch(0)
            assert ids(given) == passes(2)[1][1:]
            given.set_epoch(0)
            assert ids(given) == passes(3)[2]


def test_epoch_of_a_new_endless_dataset_is_refused() -> None:
    with dataset() as data:
        data.set_epoch(0)
        with pytest.raises(infeed.InvalidRequestError, match=r"set_epoch\(2\).*epochs=1"):
            data.set_epoch(2)
        next(iter(data))
        data.set_epoch(2)
        assert ids([next(iter(data))]) == stream(2)[1:]


def test_copy_in_another_process_continues() -> None:
    with dataset() as data:
        next(iter(data))
        assert data.__getstate__()["_feed"] is None
        copy = copied(data)
    assert copy.state_dict() == data.state_dict()
    with copy:
        assert ids([next(iter(copy))]) == stream(2)[1:]


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_of_a_loader_is_refused_with_the_remedy(workers: int) -> None:
    loader = DataLoader(
        dataset(), batch_size=None, num_workers=workers, multiprocessing_context="fork"
    )
    with pytest.raises(infeed.InvalidRequestError, match="give num_workers=0"):
        next(iter(loader))


def test_statistics_are_those_of_all_passes() -> None:
    with dataset(epochs=1) as data:
        for number in range(1, 4):
            assert len(ids(data)) == STEPS
            stats = data.stats()
            assert (stats.steps, stats.samples) == (number * STEPS, number * STEPS * 4)
            assert stats.report.total_steps == stats.steps
            assert stats.report.steps == stats.steps - 1
            assert len(stats.waits) == stats.steps - 1
        iter(data)  # ends the last pass
        assert data.stats().steps == stats.steps
        state = data.state_dict()
    with dataset(epochs=1, state=state) as data:
        assert len(ids(data)) == STEPS  # the feed at the end of the last pass gave no batch
        assert data.stats().first_batch_seconds > 0


def test_feed_is_refused_for_the_target_with_the_remedy() -> None:
    with (
        infeed.connect("fake", "fake", transport=fake()) as feed,
        pytest.raises(infeed.InvalidRequestError, match=r"feed to infeed\.torch\.connect"),
    ):
        FeedDataset(feed, "fake")  # type: ignore[arg-type]


def test_epoch_of_a_restarting_dataset_has_no_effect() -> None:
    with dataset(epochs=1, restart=True) as data:
        data.set_epoch(3)
        assert ids(data) == EVALUATION


def test_later_pass_waits_as_long_as_for_a_lost_server(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def connect(*arguments: Any, **options: Any) -> Any:
        timeouts.append(options.get("timeout", 20.0))
        return infeed.connect(*arguments, **options)

    monkeypatch.setattr(passes_module, "connect", connect)
    with dataset(epochs=1, reconnect_timeout=90.0) as data:
        for _ in range(3):
            ids(data)
    assert timeouts == [20.0, 90.0, 90.0]
