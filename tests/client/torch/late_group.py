"""Training whose dataset exists before the process group: each rank writes what it has seen.

Arguments: the library, the address of a server, and a folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.client.torch.training import loss, model, optimizer

from infeed.torch import FeedDataset

EPOCHS = 2


def main() -> None:
    library, address, folder = sys.argv[1:]
    dataset = FeedDataset(address, "fake", epochs=1, remainder="pad", ids="id")
    seen: list[Any] = []
    if library == "lightning":
        length = None
        with_lightning(dataset, seen)
    else:
        length = len(dataset)
        train = with_accelerate if library == "accelerate" else with_transformers
        train(dataset, seen)
    result = {"seen": seen, "lengths": [length, len(dataset)]}
    (Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def with_lightning(dataset: FeedDataset, seen: list[Any]) -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model()

        def training_step(self, batch: dict[str, Any], index: int) -> Any:
            seen.append(batch["id"].tolist())
            return loss(self.model, batch)

        def configure_optimizers(self) -> Any:
            return optimizer(self.model)

    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=EPOCHS,
        **dict.fromkeys(quiet, False),
    ).fit(Module(), dataset)


def with_accelerate(dataset: FeedDataset, seen: list[Any]) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    trained = accelerator.prepare(model())
    for _ in range(EPOCHS):
        for batch in dataset:
            seen.append(batch["id"].tolist())
            accelerator.backward(loss(trained, batch))


def with_transformers(dataset: FeedDataset, seen: list[Any]) -> None:
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = model()

        def forward(self, x: Any, id: Any) -> Any:  # noqa: A002 - the name of the field
            seen.append(id.tolist())
            return {"loss": loss(self.layers, {"x": x})}

    class FeedTrainer(Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return dataset

    quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    arguments = TrainingArguments(num_train_epochs=EPOCHS, use_cpu=True, **quiet)
    FeedTrainer(Model(), arguments).train()


if __name__ == "__main__":
    main()
