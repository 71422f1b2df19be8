"""Tests of Lightning's Trainer: every step trains on its batch once, also after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
L = pytest.importorskip("lightning")

from tests.plugins.frameworks.torch.fakes import EVALUATION, STEPS, fake, passes, stream  # noqa: E402
from tests.plugins.frameworks.torch.training import loss, model, optimizer, weights  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from infeed.torch import FeedCallback, FeedDataset  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in (
        "'set_vital' is deprecated",  # torchdata
        ".*does not have many workers",
        "Your `IterableDataset` has `__len__` defined",
        "Trying to infer the `batch_size`",
        ".*weights_only",
        "You're resuming from a checkpoint that ended before the epoch ended",  # of a DataLoader
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


QUIET = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")


def trainer(*callbacks: Any, **options: Any) -> Any:
    return L.Trainer(
        accelerator="cpu", callbacks=[*callbacks], **dict.fromkeys(QUIET, False), **options
    )


def feeds(loader: Any) -> Any:
    """Returns the callback for the datasets of a loader, or of several."""
    loaders = loader if isinstance(loader, list) else [loader]
    return FeedCallback(*(getattr(loader, "dataset", loader) for loader in loaders))


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), **options})


def loader(kind: str, **options: Any) -> Any:
    if kind == "dataset":
        return dataset(**options)
    if kind == "DataLoader":
        return DataLoader(dataset(**options), batch_size=None)
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    return stateful(dataset(**options), batch_size=None)


FINITE = ({"epochs": 1}, {"max_epochs": 3})
ENDLESS = ({}, {"max_steps": 3 * STEPS})
LIMITED = ({}, {"max_epochs": 3, "limit_train_batches": 5})
"""Options of the dataset and the trainer. Without a length, Lightning takes a batch ahead."""

FORMS = pytest.mark.parametrize(
    ("options", "kind", "step"),
    [
        (FINITE, "dataset", 1),
        (FINITE, "DataLoader", STEPS),
        (ENDLESS, "dataset", STEPS + 1),
        (ENDLESS, "DataLoader", 1),
        (LIMITED, "dataset", STEPS),
        (LIMITED, "DataLoader", 2 * STEPS),
    ],
)


def fit(loader: Any, *callbacks: Any, module: Any = None, **options: Any) -> Any:
    module = module or Module()
    trainer(feeds(loader), *callbacks, **options).fit(module, loader)
    return module


def interrupted(loader: Any, step: int, tmp_path: Path, **options: Any) -> Module:
    module = Module()
    with pytest.raises(ConnectionAbortedError):
        fit(loader, Interruption(step, tmp_path / "a.ckpt"), module=module, **options)
    return module


def resumed(loader: Any, tmp_path: Path, module: Any = None, **options: Any) -> Any:
    module = module or Module()
    path = tmp_path / "a.ckpt"
    trainer(feeds(loader), **options).fit(module, loader, ckpt_path=path, weights_only=False)
    return module


def batches(seen: list[Any]) -> list[Any]:
    return [batch for *_, batch in seen]


def epochs(count: int) -> list[Any]:
    return sum(passes(count), [])  # noqa: RUF017


@FORMS
def test_resumed_training_equals_uninterrupted_training(
    options: Any, kind: str, step: int, tmp_path: Path
) -> None:
    of_dataset, of_trainer = options
    whole = fit(loader(kind, **of_dataset), **of_trainer)
    first = interrupted(loader(kind, **of_dataset), step, tmp_path, **of_trainer)
    second = resumed(loader(kind, **of_dataset), tmp_path, **of_trainer)
    assert batches(first.seen + second.seen) == batches(whole.seen)
    if kind == "dataset":  # with the epoch and index of each
        assert first.seen + second.seen == whole.seen
    assert weights(second.model) == weights(whole.model) != weights(first.model)
    assert batches(whole.seen) == (epochs(3) if of_dataset else stream(len(whole.seen)))


class AtEpochEnd(L.Callback):
    """Saves a checkpoint at the end of an epoch."""

    def __init__(self, folder: Path, epoch: int = 0) -> None:
        self.checkpoint, self.epoch = folder / "a.ckpt", epoch

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == self.epoch:
            trainer.save_checkpoint(self.checkpoint)


@pytest.mark.parametrize("kind", ["dataset", "stateful", "limit"])
def test_checkpoint_at_the_end_of_an_epoch_begins_the_next(kind: str, tmp_path: Path) -> None:
    def given() -> Any:
        if kind == "stateful":
            return loader(kind, epochs=1)
        return dataset(epochs=None if kind == "limit" else 1)

    options = {"max_epochs": 4} | ({"limit_train_batches": 5} if kind == "limit" else {})
    whole = fit(given(), AtEpochEnd(tmp_path, 1), **options)
    second = resumed(given(), tmp_path, **options)
    assert second.seen == whole.seen[len(whole.seen) // 2 :]
    assert weights(second.model) == weights(whole.model)


class Two(Module):
    def training_step(self, batch: Any, index: int) -> Any:
        self.seen.append([part["x"].tolist() for part in batch])
        return loss(self.model, batch[0]) + loss(self.model, batch[1])


def test_two_datasets_continue_each_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    def two() -> Any:
        return [dataset(epochs=1), dataset(epochs=1, transport=fake(seed=4))]

    whole = fit(two(), AtEpochEnd(tmp_path), module=Two(), max_epochs=2)
    assert resumed(two(), tmp_path, Two(), max_epochs=2).seen == whole.seen[STEPS:]


@FORMS
def test_checkpoint_after_a_failed_step_does_not_count_its_batch(
    options: Any, step: int, kind: str, tmp_path: Path
) -> None:
    class Failing(Module):
        def training_step(self, batch: Any, index: int) -> Any:
            if self.trainer.global_step == step:
                raise ConnectionAbortedError
            return super().training_step(batch, index)

    class AtError(L.Callback):
        def on_exception(self, of: Any, *_: Any) -> None:
            of.save_checkpoint(tmp_path / "a.ckpt")

    of_dataset, of_trainer = options
    whole, first = fit(loader(kind, **of_dataset), **of_trainer), Failing()
    with pytest.raises(ConnectionAbortedError):
        fit(loader(kind, **of_dataset), AtError(), module=first, **of_trainer)
    second = resumed(loader(kind, **of_dataset), tmp_path, **of_trainer)
    assert batches(first.seen + second.seen) == batches(whole.seen)
    assert weights(second.model) == weights(whole.model)


@pytest.mark.parametrize(
    ("limit", "of_dataset", "of_trainer", "expected"),
    [
        (3, {"epochs": 1}, {"max_epochs": 4}, epochs(2)),
        (4, {"epochs": 1}, {"max_epochs": 1}, epochs(1)[:4]),
        (4, {"epochs": 1}, {"max_steps": STEPS}, epochs(1)),
        (4, {"epochs": 1, "restart": True}, {"max_epochs": 2}, stream(4) * 2),
        (4, {"epochs": 1}, {"max_epochs": 4}, epochs(2)),  # the second one has the rest of a pass
        (4, {}, {"max_epochs": 3}, stream(12)),
    ],
)
def test_limit_takes_the_next_batches_in_each_epoch(
    limit: int, of_dataset: Any, of_trainer: Any, expected: Any
) -> None:
    module = fit(dataset(**of_dataset), limit_train_batches=limit, **of_trainer)
    assert batches(module.seen) == expected


def test_package_pytorch_lightning_takes_the_callback(tmp_path: Path) -> None:
    other = pytest.importorskip("pytorch_lightning")

    class Small(other.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = model(), []

        training_step = Module.training_step
        configure_optimizers = Module.configure_optimizers

    def fit(count: int, **resume: Any) -> Any:
        options = {"accelerator": "cpu", **dict.fromkeys(QUIET, False)}
        module, data = Small(), loader("DataLoader", epochs=1)
        other_trainer = other.Trainer(max_epochs=count, callbacks=[feeds(data)], **options)
        other_trainer.fit(module, data, **resume)
        other_trainer.save_checkpoint(tmp_path / "a.ckpt")
        return module

    fit(1)
    module = fit(2, ckpt_path=tmp_path / "a.ckpt", weights_only=False)
    assert batches(module.seen) == passes(2)[1]


def test_evaluation_with_restart_sees_every_sample_each_time() -> None:
    module = EvaluatedModule()
    trainer(max_epochs=2).fit(module, dataset(epochs=1), dataset(epochs=1, restart=True))
    # The first two are Lightning's sanity check.
    assert module.evaluated == EVALUATION[:2] + EVALUATION * 2
