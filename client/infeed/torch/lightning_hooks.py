"""Hooks of Lightning's Trainer: what its datasets cannot see of the training.

The package's entry points give them to each Trainer, as Lightning documents for callbacks:
`lightning.pytorch.callbacks_factory`. They save the states of the datasets that the Trainer trains
on, also within a DataLoader and at the end of an epoch, where Lightning restores none.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from infeed.torch.feed_dataset import FeedDataset, Place


class LightningHooks:
    """The methods of the callback that both packages of Lightning call, without its base class."""

    state_key = "infeed.torch"

    def __init__(self) -> None:
        super().__init__()
        self._trainer: Any = None
        self._restored: dict[int, Mapping[str, Any]] = {}
        """States of a checkpoint by the number of the dataset, until it reads."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - given by name
        if stage != "fit":
            return
        self._trainer = trainer
        FeedDataset.training = weakref.WeakMethod(self.place)
        # First, so that other callbacks save a state after the step that has ended.
        trainer.callbacks.remove(self)
        trainer.callbacks.insert(0, self)

    def on_train_batch_end(self, *_: Any) -> None:
        for dataset in self._datasets():
            dataset.confirm()

    def state_dict(self) -> dict[str, Any]:
        states = [dataset.state_dict() for dataset in self._datasets()]
        states = [dict(self._restored.get(number, x)) for number, x in enumerate(states)]
        return {"datasets": states} if states else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = dict(enumerate(state_dict.get("datasets", [])))

    def place(self, dataset: FeedDataset) -> Place | None:
        """Returns the place of a dataset that the Trainer trains on, None for another one."""
        if self._trainer.training:
            for number, trained in enumerate(self._datasets()):
                if trained is dataset:
                    return Place(self._trainer.current_epoch, self._restored.pop(number, None))
        return None

    def _datasets(self) -> list[FeedDataset]:
        loaders = () if self._trainer is None else _flattened(self._trainer.train_dataloader)
        datasets = [getattr(loader, "dataset", loader) for loader in loaders]
        return [dataset for dataset in datasets if isinstance(dataset, FeedDataset)]


def lightning_callback(package: str = "lightning.pytorch") -> Any:
    """Returns the callback for one of the two packages of Lightning."""
    base = importlib.import_module(package).Callback
    return type("FeedCallback", (LightningHooks, base), {})()


pytorch_lightning_callback = partial(lightning_callback, "pytorch_lightning")


def _flattened(loaders: Any) -> Iterator[Any]:
    """Yields the loaders of nested dicts and sequences."""
    if isinstance(loaders, Mapping):
        loaders = [*loaders.values()]
    if isinstance(loaders, (list, tuple)):
        for loader in loaders:
            yield from _flattened(loader)
    else:
        yield loaders
