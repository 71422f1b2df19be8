"""Tests of Accelerate on one process: loaders that it prepares, and states that it saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("torchdata")

from accelerate import (  # noqa: E402
    Accelerator,
    DataLoaderConfiguration,
    skip_first_batches,
)
from tests.plugins.frameworks.torch.fakes import STEPS, fake, ids, passes  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import infeed  # noqa: E402
from infeed.torch import FeedDataset  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), "epochs": 1, **options})


def accelerator(**options: Any) -> Accelerator:
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))


@pytest.mark.parametrize("dispatch", [None, False])
def test_prepared_loader_of_one_process_has_every_batch(dispatch: bool | None) -> None:
    loader = accelerator(dispatch_batches=dispatch).prepare(DataLoader(dataset(), batch_size=None))
    assert [ids(loader) for _ in range(2)] == passes(2)


@pytest.mark.parametrize("step", [1, STEPS - 1, STEPS, STEPS + 2])
@pytest.mark.parametrize("dispatch", [None, False])
def test_state_of_a_prepared_loader_restores_the_rest(dispatch: bool | None, step: int) -> None:
    def prepared() -> Any:
        options = {"dispatch_batches": dispatch, "use_stateful_dataloader": True}
        return accelerator(**options).prepare(DataLoader(dataset(), batch_size=None))

    loader, given = prepared(), []
    while len(given) < step:
        # Accelerate takes one batch ahead.
        for batch in loader:
            given.append(batch)
            if len(given) == step:
                state = loader.state_dict()
                break
    other = prepared()
    other.load_state_dict(state)
    rest = [batch for batches in (ids(other), ids(other)) for batch in batches]
    expected = [batch for batches in passes(4) for batch in batches]
    assert ids(given) + rest == expected[: step + len(rest)]


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("skipped", [0, 2, STEPS - 1])
def test_skipped_batches_are_those_of_the_epoch_that_was_set(epoch: int, skipped: int) -> None:
    given = accelerator()
    loader = given.prepare(DataLoader(dataset(), batch_size=None))
    loader.set_epoch(epoch)
    assert ids(skip_first_batches(loader, skipped)) == passes(epoch + 1)[epoch][skipped:]
    loader.set_epoch(epoch + 1)
    assert ids(loader) == passes(epoch + 2)[epoch + 1]


def test_state_that_accelerate_restores_is_in_its_epoch(tmp_path: Path) -> None:
    def begun() -> tuple[Accelerator, FeedDataset]:
        given, data = accelerator(), dataset()
        given.register_for_checkpointing(data)
        return given, data

    given, data = begun()
    list(data)
    next(iter(data))
    given.save_state(str(tmp_path))
    other, data = begun()
    other.load_state(str(tmp_path))
    assert [ids(data), ids(data)] == [passes(2)[1][1:], passes(3)[2]]


@pytest.mark.parametrize("dispatch", [None, False])
def test_state_with_a_batch_taken_ahead_is_refused(dispatch: bool | None, tmp_path: Path) -> None:
    given, data = accelerator(dispatch_batches=dispatch), dataset()
    given.register_for_checkpointing(data)
    loader = given.prepare(DataLoader(data, batch_size=None))
    remedy = "do not pass the loader to accelerator.prepare"
    for step, _ in enumerate(loader, 1):
        if step < STEPS:
            with pytest.raises(infeed.InvalidRequestError, match=remedy):
                given.save_state(str(tmp_path))
    given.save_state(str(tmp_path))
    assert ids(data) == passes(2)[1]
