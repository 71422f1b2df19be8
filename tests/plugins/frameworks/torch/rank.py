"""Rank of a training: writes what it has seen, and the error of a dataset that is refused.

Arguments: the library, the address of a server, a folder, and perhaps a state to resume from. The
dataset exists before the process group, except for libraries that need its shard.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.plugins.frameworks.torch.training import Run, loss, model, optimizer, weights
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from infeed import InvalidRequestError, Shard
from infeed.torch import FeedDataset

EPOCHS = 2


def main() -> None:
    library, address, folder, *saved = sys.argv[1:]
    seen: list[Any] = []
    result: dict[str, Any] = {"seen": seen, "lengths": []}

    def dataset(shard: Shard | None = None) -> FeedDataset:
        padded: Any = {"remainder": "pad", "empty": {"x": 0}}  # zeros are trained on
        return FeedDataset(address, "fake", epochs=1, ids="id", shard=shard, **padded)

    try:
        if library in ("torch", "lightning"):
            data = dataset()
            if library == "torch":  # Lightning starts the second rank in `fit`
                result["lengths"].append(len(data))
                result["weights"] = with_torch(data, seen, Path(folder) / "state", *saved)
            else:
                with_lightning(data, seen)
        else:
            data = globals()[f"with_{library}"](dataset, seen)
        result["lengths"].append(len(data))
    except InvalidRequestError as error:
        result["error"] = error.message
    rank = dist.get_rank()
    (Path(folder) / f"{rank}.json").write_text(json.dumps(result))
    if "error" not in result:
        dist.barrier()
        dist.destroy_process_group()
        os._exit(0)  # a thread of PyTorch's may abort the process at the interpreter's end


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


def with_accelerate(dataset: Callable[..., FeedDataset], seen: list[Any]) -> FeedDataset:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    trained = accelerator.prepare(model())
    data = dataset()
    for _ in range(EPOCHS):
        for batch in data:
            seen.append(batch["id"].tolist())
            accelerator.backward(loss(trained, batch))
    return data


def with_no_shard(dataset: Callable[..., FeedDataset], seen: list[Any]) -> FeedDataset:
    return read_prepared(dataset(), seen, dispatch=False)


def with_prepared(dataset: Callable[..., FeedDataset], seen: list[Any]) -> FeedDataset:
    return read_prepared(dataset(launched()), seen, dispatch=False)


def with_prepared_dispatching(dataset: Callable[..., FeedDataset], seen: list[Any]) -> FeedDataset:
    return read_prepared(dataset(launched()), seen, dispatch=True)


def launched() -> Shard:
    return Shard(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


def read_prepared(data: FeedDataset, seen: list[Any], *, dispatch: bool) -> FeedDataset:
    """Reads a dataset as no recipe does."""
    from accelerate import Accelerator, DataLoaderConfiguration

    options = DataLoaderConfiguration(dispatch_batches=dispatch)
    accelerator = Accelerator(cpu=True, dataloader_config=options)
    loader = DataLoader(data, batch_size=None if dispatch else 1)  # None cannot be split
    seen.extend(batch["id"].tolist() for batch in accelerator.prepare(loader))
    return data


def with_transformers(dataset: Callable[..., FeedDataset], seen: list[Any]) -> FeedDataset:
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
            return data

    quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    arguments = TrainingArguments(num_train_epochs=EPOCHS, use_cpu=True, **quiet)
    data = dataset()
    FeedTrainer(Model(), arguments).train()
    return data


if __name__ == "__main__":
    main()
