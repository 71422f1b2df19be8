"""Tests of torchdata's StatefulDataLoader and nodes, and of loops that are interrupted."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchdata")

import torchdata.nodes as tn  # noqa: E402
from tests.client.torch.fakes import STEPS, fake, ids, passes, stream  # noqa: E402
from tests.client.torch.training import Run, weights  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402
from torchdata.stateful_dataloader.stateful import Stateful  # noqa: E402

import infeed  # noqa: E402
from infeed.torch import FeedDataset, connect  # noqa: E402

# torchdata 0.11 calls a function that torch 2.13 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), "epochs": 1, **options})


def loader(**options: Any) -> StatefulDataLoader:
    return StatefulDataLoader(dataset(**options), batch_size=None)


def test_dataset_is_stateful() -> None:
    assert isinstance(dataset(), Stateful)


def test_each_iteration_of_the_loader_is_the_next_epoch() -> None:
    given = loader()
    assert len(given) == STEPS
    assert [ids(given) for _ in range(3)] == passes(3)


@pytest.mark.parametrize("step", range(2 * STEPS))
def test_state_of_each_step_restores_the_rest(step: int) -> None:
    expected = passes(3)
    given = loader()
    for _ in range(step // STEPS):
        list(given)
    iterator = iter(given)
    for _ in range(step % STEPS):
        next(iterator)
    state = given.state_dict()
    other = loader()
    other.load_state_dict(state)
    assert ids(other) == expected[step // STEPS][step % STEPS :]
    assert ids(other) == expected[step // STEPS + 1]


def test_state_after_the_last_batch_leaves_an_empty_rest() -> None:
    given = loader()
    iterator = iter(given)
    for _ in range(STEPS):
        next(iterator)
    other = loader()
    other.load_state_dict(given.state_dict())
    assert [ids(other) for _ in range(2)] == [[], passes(2)[1]]


def test_state_of_a_finished_loader_begins_the_next_epoch() -> None:
    given = loader()
    list(given)
    other = loader()
    other.load_state_dict(given.state_dict())
    assert ids(other) == passes(2)[1]


def test_state_before_the_first_iteration_loses_nothing() -> None:
    given = loader(epochs=None)
    state = given.state_dict()
    iterator = iter(given)
    assert ids(next(iterator) for _ in range(3)) == stream(3)
    other = loader(epochs=None)
    other.load_state_dict(state)
    assert ids([next(iter(other))]) == stream(1)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_worker_of_the_loader_is_refused(context: str) -> None:
    data = dataset(transport=None) if context == "spawn" else dataset()
    given = StatefulDataLoader(
        data, batch_size=None, num_workers=1, multiprocessing_context=context
    )
    with pytest.raises(infeed.InvalidRequestError, match="give num_workers=0"):
        next(iter(given))


@pytest.mark.parametrize("step", range(2 * STEPS + 1))
def test_loader_of_nodes_restores_the_rest(step: int) -> None:
    expected = [*chain.from_iterable(passes(4))]
    given = tn.Loader(dataset())
    batches: list[Any] = []
    while len(batches) < step:
        for batch in given:
            batches.append(batch)
            if len(batches) == step:
                break
    assert ids(batches) == expected[:step]
    state = given.state_dict()
    other = tn.Loader(dataset())
    other.load_state_dict(state)
    rest = ids(other) + ids(other)
    assert rest == expected[step:][: len(rest)]
    assert len(rest) > STEPS


def test_prefetcher_of_nodes_restores_the_rest() -> None:
    given = tn.Loader(tn.Prefetcher(dataset(), prefetch_factor=2))
    iterator = iter(given)
    assert ids(next(iterator) for _ in range(2)) == stream(2)
    state = given.state_dict()
    other = tn.Loader(tn.Prefetcher(dataset(), prefetch_factor=2))
    other.load_state_dict(state)
    assert ids(other) == passes(1)[0][2:]


EPOCHS = 3


def uninterrupted() -> list[float]:
    run = Run()
    for batch in chain.from_iterable(passes(EPOCHS)):
        run.step({"x": torch.tensor(batch)})
    return weights(run.model)


@pytest.mark.parametrize("stop", [1, STEPS - 1, STEPS + 2])
def test_resumed_training_equals_uninterrupted_training(stop: int, tmp_path: Path) -> None:
    def train(checkpoint: Any, stop: int | None) -> Run:
        run, given, steps = Run(), loader(), 0
        first = 0
        if checkpoint:
            first = checkpoint["epoch"]
            run.load_state_dict(checkpoint["run"])
            given.load_state_dict(checkpoint["loader"])
        for epoch in range(first, EPOCHS):
            for batch in given:
                run.step(batch)
                steps += 1
                if steps == stop:
                    saved = {"epoch": epoch, "run": run.state_dict(), "loader": given.state_dict()}
                    torch.save(saved, tmp_path / "checkpoint.pt")
                    return run
        return run

    assert weights(train(None, stop).model) != uninterrupted()
    checkpoint = torch.load(tmp_path / "checkpoint.pt")
    assert weights(train(checkpoint, None).model) == uninterrupted()


def test_resumed_direct_iterator_trains_as_an_uninterrupted_one() -> None:
    def train(run: Run, steps: int, state: Any) -> Any:
        with connect("fake", "fake", transport=fake(), state=state) as feed:
            for _, batch in zip(range(steps), feed, strict=False):
                run.step(batch)
            return feed.state()

    whole, first, second = Run(), Run(), Run()
    train(whole, 9, None)
    state = train(first, 4, None)
    second.load_state_dict(first.state_dict())
    train(second, 5, state)
    assert weights(second.model) == weights(whole.model) != weights(first.model)
