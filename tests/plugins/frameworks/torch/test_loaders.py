"""Tests of torchdata's StatefulDataLoader and nodes, and of loops that are interrupted."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchdata")

import torchdata.nodes as tn  # noqa: E402
from tests.plugins.frameworks.torch.fakes import STEPS, fake, ids, passes  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

import infeed  # noqa: E402
from infeed.torch import FeedDataset  # noqa: E402

# torchdata 0.11 calls a function that torch 2.13 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), "epochs": 1, **options})


def loader(**options: Any) -> StatefulDataLoader:
    return StatefulDataLoader(dataset(**options), batch_size=None)


def test_each_iteration_of_the_loader_is_the_next_epoch() -> None:
    given = loader()
    assert len(given) == STEPS
    assert [ids(given) for _ in range(3)] == passes(3)


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("options", [{}, {"batch_size": 32}])
def test_loader_that_would_stack_batches_is_refused_with_the_remedy(
    kind: Any, options: Any
) -> None:
    with pytest.raises(infeed.InvalidRequestError, match=r"DataLoader\(dataset, batch_size=None\)"):
        next(iter(kind(dataset(), **options)))


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
