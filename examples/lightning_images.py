"""Small convolutional network on JPEGs, with PyTorch Lightning; it can be killed and started again.

    infeed serve examples/folder_csv_labels.yaml
    python examples/lightning_images.py 127.0.0.1:7470 pictures --epochs 10

The data module returns datasets in place of loaders. In each checkpoint, `FeedCallback` saves the
position of the one that is trained on.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torchmetrics import SumMetric

from infeed.torch import FeedCallback, FeedDataset


class Images(lightning.LightningDataModule):
    """The batches of two pipelines; each rank reads its own."""

    def __init__(self, target: str, pipeline: str, validation: str) -> None:
        super().__init__()
        self.train = FeedDataset(target, pipeline, epochs=1)
        self.val = FeedDataset(target, validation, epochs=1, restart=True, mask="valid")

    def train_dataloader(self) -> FeedDataset:
        return self.train

    def val_dataloader(self) -> FeedDataset:
        return self.val


class Classifier(lightning.LightningModule):
    """A network that is trained on all images, and evaluated on the valid slots."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, classes),
        )
        self.right, self.count = SumMetric(), SumMetric()

    def forward(self, image: torch.Tensor) -> Any:
        return self.layers(image.permute(0, 3, 1, 2))  # infeed's channels are last

    def on_train_start(self) -> None:
        if self.global_step:
            print(f"continues after step {self.global_step}", flush=True)

    def training_step(self, batch: dict[str, Any], _: int) -> Any:
        return nn.functional.cross_entropy(self(batch["image"]), batch["label"].long())

    def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
        loss = float(outputs["loss"])
        print(f"epoch {self.current_epoch}, step {self.global_step}: loss {loss:.6f}", flush=True)

    def validation_step(self, batch: dict[str, Any], _: int) -> None:
        guess = self(batch["image"]).argmax(1)
        self.right.update((guess == batch["label"])[batch["valid"]])
        self.count.update(batch["valid"])

    def on_validation_epoch_end(self) -> None:
        right, count = int(self.right.compute()), int(self.count.compute())  # over all ranks
        print(f"validation: {right} of {count} right", flush=True)
        self.right.reset()
        self.count.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.001)


def main() -> None:
    options = parse_arguments()
    lightning.seed_everything(0)
    module = Classifier(options.classes)
    data = Images(options.target, options.pipeline, options.validation or options.pipeline)
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        callbacks=[
            FeedCallback(data.train),
            ModelCheckpoint(options.output, every_n_train_steps=options.save_every, save_last=True),
        ],
        logger=False,
        enable_progress_bar=False,
    )
    # The state has a dict, which PyTorch loads only with `weights_only=False`.
    trainer.fit(module, data, ckpt_path="last", weights_only=False)
    print(f"weights {digest(module)}")


def digest(module: nn.Module) -> str:
    """Returns a hash of all bits of the weights."""
    hashed = hashlib.sha256()
    for parameter in module.parameters():
        hashed.update(parameter.detach().cpu().numpy().tobytes())
    return hashed.hexdigest()[:16]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="address of the server")
    parser.add_argument("pipeline", help="name of a pipeline with the fields image and label")
    parser.add_argument("--validation", help="name of its pipeline; default: the training's")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("lightning_images"))
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    return parser.parse_args()


if __name__ == "__main__":
    main()
