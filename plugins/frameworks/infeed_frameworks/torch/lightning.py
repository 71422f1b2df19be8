"""Callback for Lightning's Trainer: the states of datasets in its checkpoints, step by step."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from infeed_frameworks.torch.feed_dataset import FeedDataset

if TYPE_CHECKING or find_spec("lightning"):
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback


class FeedCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Saves the states of the datasets that a Trainer trains on in each checkpoint, and restores
    them, at the end of an epoch too. A batch counts when its step has ended: neither one that
    Lightning takes ahead, nor one whose `training_step` failed.
    """

    def __init__(self, *datasets: FeedDataset) -> None:
        super().__init__()
        self._datasets = datasets

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - given by name
        if stage == "fit":
            for dataset in self._datasets:
                dataset.confirm(0)

    def on_train_batch_end(self, *_: Any) -> None:
        for dataset in self._datasets:
            dataset.confirm()

    def state_dict(self) -> dict[str, Any]:
        return {"datasets": [dataset.state_dict() for dataset in self._datasets]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for dataset, state in zip(self._datasets, state_dict["datasets"], strict=True):
            dataset.load_state_dict(state)
