"""Rank of a training whose dataset exists before the process group: writes what it has seen.

Arguments: the library, the address of a server, a folder, and perhaps a state to resume from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.client.torch.training import Run, loss, model, optimizer, weights
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from infeed.torch import FeedDataset

EPOCHS = 2


def main() -> None:
    library, address, folder, *saved = sys.argv[1:]
    dataset = FeedDataset(address, "fake", epochs=1, remainder="pad", ids="id")
    seen: list[Any] = []
    result: dict[str, Any] = {"seen": seen, "lengths": []}
    if library != "lightning":  # which starts the second rank in `fit`
        result["lengths"].append(len(dataset))
    if library == "torch":
        result["weights"] = with_torch(dataset, seen, Path(folder) / "state", *saved)
    else:
        globals()[f"with_{library}"](dataset, seen)
    result["lengths"].append(len(dataset))
    (Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def with_torch(dataset: FeedDataset, seen: list[Any], state: Path, *saved: str) -> list[float]:
    """Saves the state after two steps; returns the weights at the end."""
    dist.init_process_group("gloo")
    run = Run()
    run.model = DistributedDataParallel(run.model)
    run.optimizer = optimizer(run.model)
    if saved:
        dataset.load_state_dict(json.loads(Path(saved[0]).read_text()))
    for _ in range(EPOCHS):
        for batch in DataLoader(dataset, batch_size=None):
            run.step(batch)
            seen.append(batch["id"].tolist())
            if len(seen) == 2 and dist.get_rank() == 0:
                state.write_text(json.dumps(dataset.state_dict()))
    return weights(run.model)


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
