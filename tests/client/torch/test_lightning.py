"""Tests of Lightning's Trainer: every step trains on its batch once, also after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
L = pytest.importorskip("lightning")

from tests.client.torch.fakes import STEPS, fake, ids, passes, stream  # noqa: E402
from tests.client.torch.training import loss, model, optimizer, weights  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import infeed  # noqa: E402
from infeed.torch import FeedDataset, callers  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in (
        "'set_vital' is deprecated",  # torchdata
        ".*does not have many workers",
        "Your `IterableDataset` has `__len__` defined",
        "Trying to infer the `batch_size`",
        ".*weights_only",
        ".*treespec",
        "`isinstance\\(treespec",
    )
]


class Module(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = model()
        self.seen: list[Any] = []

    def training_step(self, batch: dict[str, Any], index: int) -> Any:
        self.seen.append((self.trainer.current_epoch, index, batch["x"].tolist()))
        return loss(self.model, batch)

    def configure_optimizers(self) -> Any:
        return optimizer(self.model)


class EvaluatedModule(Module):
    def __init__(self) -> None:
        super().__init__()
        self.evaluated: list[Any] = []

    def validation_step(self, batch: dict[str, Any], index: int) -> None:
        self.evaluated.append(batch["x"].tolist())


class Interruption(L.Callback):
    """Saves a checkpoint after a step, and ends the process's training there."""

    def __init__(self, step: int, checkpoint: Path) -> None:
        self.step, self.checkpoint = step, checkpoint

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.checkpoint)
            raise ConnectionAbortedError


def trainer(*callbacks: Any, **options: Any) -> Any:
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return L.Trainer(
        accelerator="cpu", callbacks=[*callbacks], **dict.fromkeys(quiet, False), **options
    )


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), **options})


FINITE = ({"epochs": 1}, {"max_epochs": 3})
ENDLESS = ({}, {"max_steps": 3 * STEPS})
LIMITED = ({}, {"max_epochs": 3, "limit_train_batches": 5})
"""Options of the dataset and the trainer. Without a length, Lightning takes a batch ahead."""


def interrupted(loader: Any, step: int, tmp_path: Path, **options: Any) -> Module:
    module = Module()
    with pytest.raises(ConnectionAbortedError):
        trainer(Interruption(step, tmp_path / "a.ckpt"), **options).fit(module, loader)
    return module


def resumed(loader: Any, tmp_path: Path, **options: Any) -> Module:
    module = Module()
    trainer(**options).fit(module, loader, ckpt_path=tmp_path / "a.ckpt", weights_only=False)
    return module


@pytest.mark.parametrize("step", [1, 5, STEPS, STEPS + 1, 10, 2 * STEPS])
@pytest.mark.parametrize("options", [FINITE, ENDLESS, LIMITED], ids=["finite", "endless", "limit"])
def test_resumed_training_equals_uninterrupted_training(
    options: Any, step: int, tmp_path: Path
) -> None:
    of_dataset, of_trainer = options
    whole = Module()
    trainer(**of_trainer).fit(whole, dataset(**of_dataset))
    first = interrupted(dataset(**of_dataset), step, tmp_path, **of_trainer)
    second = resumed(dataset(**of_dataset), tmp_path, **of_trainer)
    assert first.seen + second.seen == whole.seen
    assert weights(second.model) == weights(whole.model) != weights(first.model)
    given = [batch for *_, batch in whole.seen]
    expected = sum(passes(3), []) if of_dataset else stream(len(given))  # noqa: RUF017
    assert given == expected


@pytest.mark.parametrize("step", [1, STEPS - 1, STEPS + 1])
def test_stateful_data_loader_resumes_within_an_epoch(step: int, tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    first = interrupted(stateful(dataset(epochs=1), batch_size=None), step, tmp_path, max_epochs=3)
    second = resumed(stateful(dataset(epochs=1), batch_size=None), tmp_path, max_epochs=3)
    given = [batch for *_, batch in first.seen + second.seen]
    assert given == sum(passes(3), [])  # noqa: RUF017


@pytest.mark.parametrize("kind", ["dataset", "StatefulDataLoader", "limit"])
def test_checkpoint_at_the_end_of_an_epoch_begins_the_next(kind: str, tmp_path: Path) -> None:
    class AtEnd(L.Callback):
        def on_train_epoch_end(self, of: Any, *_: Any) -> None:
            if of.current_epoch == 1:
                of.save_checkpoint(tmp_path / "a.ckpt")

    def loader() -> Any:
        if kind == "StatefulDataLoader":
            stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
            return stateful(dataset(epochs=1), batch_size=None)
        return dataset(epochs=None if kind == "limit" else 1)

    options = {"limit_train_batches": 5} if kind == "limit" else {}
    whole = Module()
    trainer(AtEnd(), max_epochs=4, **options).fit(whole, loader())
    second = resumed(loader(), tmp_path, max_epochs=4, **options)
    assert second.seen == whole.seen[len(whole.seen) // 2 :]
    assert weights(second.model) == weights(whole.model)


def test_checkpoint_of_two_datasets_at_the_end_of_an_epoch_is_refused(tmp_path: Path) -> None:
    class Two(Module):
        def training_step(self, batch: Any, index: int) -> Any:
            return loss(self.model, batch[0]) + loss(self.model, batch[1])

    class AtEnd(L.Callback):
        def on_train_epoch_end(self, of: Any, *_: Any) -> None:
            of.save_checkpoint(tmp_path / "a.ckpt")

    def two() -> Any:
        return [dataset(epochs=1), dataset(epochs=1)]

    trainer(AtEnd(), max_epochs=1).fit(Two(), two())
    with pytest.raises(infeed.InvalidRequestError, match="the states of 2 datasets"):
        trainer(max_epochs=2).fit(Two(), two(), ckpt_path=tmp_path / "a.ckpt", weights_only=False)


def test_evaluation_with_restart_sees_every_sample_each_time() -> None:
    module = EvaluatedModule()
    trainer(max_epochs=2).fit(
        module, dataset(epochs=1), dataset(epochs=1, restart=True, remainder="pad")
    )
    whole = passes(1, remainder="pad")[0]
    assert module.evaluated == whole[:2] + whole + whole  # the first two: Lightning's sanity check


def test_dataset_of_evaluation_does_not_get_the_state_of_training(tmp_path: Path) -> None:
    class AtEnd(L.Callback):
        def on_train_epoch_end(self, of: Any, *_: Any) -> None:
            of.save_checkpoint(tmp_path / "a.ckpt")

    trainer(AtEnd(), max_epochs=1).fit(Module(), dataset(epochs=1))
    module = EvaluatedModule()
    trainer(max_epochs=2, num_sanity_val_steps=0).fit(
        module,
        dataset(epochs=1),
        dataset(epochs=1, restart=True),
        ckpt_path=tmp_path / "a.ckpt",
        weights_only=False,
    )
    assert module.evaluated == passes(1)[0]


def test_data_loader_trains_on_every_batch_once() -> None:
    module = Module()
    trainer(max_epochs=2).fit(module, DataLoader(dataset(epochs=1), batch_size=None))
    assert [batch for *_, batch in module.seen] == sum(passes(2), [])  # noqa: RUF017


class _PrefetchDataFetcher:
    """Lightning's class as a later version may have it, without its public attributes."""

    def fetch(self, data: FeedDataset) -> Any:
        return next(iter(data))


def test_lightning_that_hides_its_batches_ahead_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "_LIBRARIES", (__name__.partition(".")[0],))
    with dataset() as data, pytest.raises(infeed.InvalidRequestError, match="ahead=1"):
        _PrefetchDataFetcher().fetch(data)
    with dataset(ahead=1) as data:
        assert ids([_PrefetchDataFetcher().fetch(data)]) == stream(1)
