"""Tests of Lightning's Trainer: every step trains on its batch once, also after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
L = pytest.importorskip("lightning")

from tests.client.torch.fakes import STEPS, fake, passes, stream  # noqa: E402
from tests.client.torch.training import loss, model, optimizer, weights  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import infeed  # noqa: E402
from infeed.torch import FeedDataset  # noqa: E402

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


@pytest.mark.parametrize("kind", ["dataset", "StatefulDataLoader", "limit", "ahead"])
def test_checkpoint_at_the_end_of_an_epoch_begins_the_next(kind: str, tmp_path: Path) -> None:
    class AtEnd(L.Callback):
        def on_train_epoch_end(self, of: Any, *_: Any) -> None:
            if of.current_epoch == 1:
                of.save_checkpoint(tmp_path / "a.ckpt")

    def loader() -> Any:
        if kind == "StatefulDataLoader":
            stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
            return stateful(dataset(epochs=1), batch_size=None)
        ahead = 0 if kind == "ahead" else None
        return dataset(epochs=None if kind == "limit" else 1, ahead=ahead)

    options = {"limit_train_batches": 5} if kind == "limit" else {}
    whole = Module()
    trainer(AtEnd(), max_epochs=4, **options).fit(whole, loader())
    second = resumed(loader(), tmp_path, max_epochs=4, **options)
    assert second.seen == whole.seen[len(whole.seen) // 2 :]
    assert weights(second.model) == weights(whole.model)


class Two(Module):
    def training_step(self, batch: Any, index: int) -> Any:
        self.seen.append([each["x"].tolist() for each in batch])
        return loss(self.model, batch[0]) + loss(self.model, batch[1])


class AtEpochEnd(L.Callback):
    """Saves a checkpoint at the end of an epoch."""

    def __init__(self, checkpoint: Path, epoch: int = 0) -> None:
        self.checkpoint, self.epoch = checkpoint, epoch

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == self.epoch:
            trainer.save_checkpoint(self.checkpoint)


def test_two_datasets_continue_each_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    def two() -> Any:
        return [dataset(epochs=1), dataset(epochs=1, transport=fake(seed=4))]

    whole, second = Two(), Two()
    trainer(AtEpochEnd(tmp_path / "a.ckpt"), max_epochs=2).fit(whole, two())
    trainer(max_epochs=2).fit(second, two(), ckpt_path=tmp_path / "a.ckpt", weights_only=False)
    assert second.seen == whole.seen[STEPS:]


def plain(**options: Any) -> Any:
    return DataLoader(dataset(**options), batch_size=None)


@pytest.mark.parametrize("step", [1, 5, STEPS, STEPS + 1, 2 * STEPS])
@pytest.mark.parametrize("options", [FINITE, ENDLESS, LIMITED], ids=["finite", "endless", "limit"])
def test_data_loader_resumes_with_every_later_batch(
    options: Any, step: int, tmp_path: Path
) -> None:
    of_dataset, of_trainer = options
    whole = Module()
    trainer(**of_trainer).fit(whole, plain(**of_dataset))
    first = interrupted(plain(**of_dataset), step, tmp_path, **of_trainer)
    second = resumed(plain(**of_dataset), tmp_path, **of_trainer)
    assert [b for *_, b in first.seen + second.seen] == [b for *_, b in whole.seen]
    assert weights(second.model) == weights(whole.model)


@pytest.mark.parametrize("kind", ["dataset", "DataLoader"])
@pytest.mark.parametrize("step", [1, STEPS - 1, STEPS, STEPS + 2])
@pytest.mark.parametrize("options", [FINITE, ENDLESS], ids=["finite", "endless"])
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
    make = plain if kind == "DataLoader" else dataset
    whole, first = Module(), Failing()
    trainer(**of_trainer).fit(whole, make(**of_dataset))
    with pytest.raises(ConnectionAbortedError):
        trainer(AtError(), **of_trainer).fit(first, make(**of_dataset))
    second = resumed(make(**of_dataset), tmp_path, **of_trainer)
    assert [b for *_, b in first.seen + second.seen] == [b for *_, b in whole.seen]
    assert weights(second.model) == weights(whole.model)


class Reloading(Module):
    def train_dataloader(self) -> Any:
        return dataset(epochs=1)


def test_reloaded_dataset_begins_with_the_epoch_of_the_trainer(tmp_path: Path) -> None:
    options = {"max_epochs": 4, "reload_dataloaders_every_n_epochs": 1}
    whole, second = Reloading(), Reloading()
    trainer(AtEpochEnd(tmp_path / "a.ckpt", 1), **options).fit(whole)
    assert [batch for *_, batch in whole.seen] == sum(passes(4), [])  # noqa: RUF017
    trainer(**options).fit(second, ckpt_path=tmp_path / "a.ckpt", weights_only=False)
    assert second.seen == whole.seen[2 * STEPS :]


def test_reloaded_endless_dataset_is_refused_with_the_remedy() -> None:
    class Endless(Module):
        def train_dataloader(self) -> Any:
            return dataset()

    options = {"max_epochs": 2, "reload_dataloaders_every_n_epochs": 1, "limit_train_batches": 2}
    with pytest.raises(infeed.InvalidRequestError, match=r"set_epoch\(1\).*epochs=1"):
        trainer(**options).fit(Endless())


@pytest.mark.parametrize("kind", ["dataset", "DataLoader"])
def test_limit_that_does_not_divide_a_pass_is_refused_with_the_remedy(kind: str) -> None:
    make = plain if kind == "DataLoader" else dataset
    with pytest.raises(infeed.InvalidRequestError, match=r"would have 2; give .*epochs=None"):
        trainer(max_epochs=3, limit_train_batches=4).fit(Module(), make(epochs=1))


@pytest.mark.parametrize(
    ("limit", "of_dataset", "of_trainer"),
    [
        (3, {"epochs": 1}, {"max_epochs": 4}),
        (4, {"epochs": 1}, {"max_epochs": 1}),
        (4, {"epochs": 1}, {"max_steps": STEPS}),
        (4, {"epochs": 1, "restart": True}, {"max_epochs": 2}),
        (4, {}, {"max_epochs": 3}),
        (9, {"epochs": 1}, {"max_epochs": 2}),
    ],
)
def test_limit_without_a_short_epoch_is_accepted(
    limit: int, of_dataset: Any, of_trainer: Any
) -> None:
    module = Module()
    trainer(limit_train_batches=limit, **of_trainer).fit(module, dataset(**of_dataset))
    expected = stream(limit) * 2 if "restart" in of_dataset else None
    if expected is None:
        expected = stream(20) if not of_dataset else sum(passes(3), [])  # noqa: RUF017
    assert [batch for *_, batch in module.seen] == expected[: len(module.seen)]
    assert len(module.seen) >= min(limit, STEPS)


def test_dataset_that_a_step_reads_itself_is_left_alone(tmp_path: Path) -> None:
    class Reading(Module):
        def __init__(self, other: FeedDataset) -> None:
            super().__init__()
            self.other, self.read = other, []

        def training_step(self, batch: Any, index: int) -> Any:
            self.read.append(next(self.other)["x"].tolist())
            return super().training_step(batch, index)

    first = Reading(dataset())
    trainer(AtEpochEnd(tmp_path / "a.ckpt"), max_epochs=1).fit(first, dataset(epochs=1))
    assert first.read == stream(STEPS)
    assert first.other.state_dict()["cursor"]["position"] == 4 * STEPS
    second = Reading(dataset())
    trainer(max_epochs=2).fit(
        second, dataset(epochs=1), ckpt_path=tmp_path / "a.ckpt", weights_only=False
    )
    assert second.read == stream(STEPS)
    assert [batch for *_, batch in second.seen] == passes(2)[1]


def test_package_pytorch_lightning_has_the_same_hooks(tmp_path: Path) -> None:
    other = pytest.importorskip("pytorch_lightning")

    class Small(other.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = model(), []

        training_step = Module.training_step
        configure_optimizers = Module.configure_optimizers

    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options = {"accelerator": "cpu", **dict.fromkeys(quiet, False)}
    first = other.Trainer(max_epochs=1, **options)
    first.fit(Small(), plain(epochs=1))
    first.save_checkpoint(tmp_path / "a.ckpt")
    module = Small()
    second = other.Trainer(max_epochs=2, **options)
    second.fit(module, plain(epochs=1), ckpt_path=tmp_path / "a.ckpt", weights_only=False)
    assert [batch for *_, batch in module.seen] == passes(2)[1]


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
