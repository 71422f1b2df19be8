"""Evaluation of 100 samples in batches of 32 by each library, as its users write it.

As a program it is one of several ranks, and writes its result. Arguments: the library, the address
of a server, and a folder.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from infeed.testing import FakeTransport
from infeed.torch import FeedDataset

COUNT, BATCH_SIZE, CLASSES = 100, 32, 5

Result = dict[str, float]
"""Loss, accuracy and number of samples."""

EXAMPLE = Path(__file__).parents[4] / "examples" / "transformers_images.py"

QUIET = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")


def arrays() -> dict[str, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(COUNT, 3)).astype(np.float32)
    return {"x": x, "label": random.integers(0, CLASSES, COUNT)}


def fake() -> FakeTransport:
    return FakeTransport(arrays(), seed=3, batch_size=BATCH_SIZE, name="fake")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, CLASSES)


def exact() -> Result:
    """Returns the result over all samples at once."""
    whole = {name: torch.from_numpy(x) for name, x in arrays().items()}
    logits = model()(whole["x"])
    loss = cross_entropy(logits, whole["label"]).item()
    accuracy = (logits.argmax(1) == whole["label"]).float().mean().item()
    return {"loss": loss, "accuracy": accuracy, "count": COUNT}


def with_torch(data: FeedDataset) -> Result:
    """Ignores the label -100, and adds up over the ranks."""
    net, sums = model(), torch.zeros(3)
    for batch in data:
        logits, labels = net(batch["x"]), batch["label"]
        right, count = (logits.argmax(1) == labels).sum(), (labels != -100).sum()
        sums += torch.tensor([cross_entropy(logits, labels, reduction="sum"), right, count])
    if dist.is_initialized():
        dist.all_reduce(sums)
    loss, right, count = sums.tolist()
    return {"loss": loss / count, "accuracy": right / count, "count": count}


def with_accelerate(data: FeedDataset) -> Result:
    """Gathers logits and labels, whose shapes are the same on all ranks."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = accelerator.prepare(model())
    gathered = [
        accelerator.gather_for_metrics((net(batch["x"]).detach(), batch["label"])) for batch in data
    ]
    logits, labels = (torch.cat(parts) for parts in zip(*gathered, strict=True))
    right = (logits.argmax(1) == labels)[labels != -100]
    loss = cross_entropy(logits, labels).item()
    return {"loss": loss, "accuracy": right.float().mean().item(), "count": len(right)}


def with_lightning(data: FeedDataset, ranks: int = 2) -> Result:
    """Logs sums over the ranks."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model()

        def validation_step(self, batch: dict[str, Any], _: int) -> None:
            logits, labels = self.model(batch["x"]), batch["label"]
            counted = labels != -100
            sums = {
                "loss": cross_entropy(logits, labels, reduction="sum"),
                "right": (logits.argmax(1) == labels)[counted].sum().float(),
                "count": counted.sum().float(),
            }
            self.log_dict(sums, reduce_fx="sum", sync_dist=True, on_epoch=True)

    options = {"accelerator": "cpu", "devices": ranks, **dict.fromkeys(QUIET, False)}
    strategy = "ddp" if ranks > 1 else "auto"
    (sums,) = lightning.Trainer(strategy=strategy, **options).validate(
        Module(), data, verbose=False
    )
    loss, accuracy = sums["loss"] / sums["count"], sums["right"] / sums["count"]
    return {"loss": loss, "accuracy": accuracy, "count": sums["count"]}


def with_transformers(data: FeedDataset) -> Result:
    """Follows the recipe of the example."""
    from transformers import TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = model()

        def forward(self, x: Any, label: Any) -> Any:
            logits = self.layers(x)
            return {"loss": cross_entropy(logits, label), "logits": logits}

    recipe = runpy.run_path(str(EXAMPLE))
    quiet: Any = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    arguments = TrainingArguments(use_cpu=True, label_names=["label"], **quiet)
    trainer = recipe["FeedTrainer"](
        Model(), arguments, eval_dataset=data, compute_metrics=recipe["evaluate"]
    )
    metrics = trainer.evaluate()
    names = {"loss": "eval_loss", "accuracy": "eval_accuracy", "count": "eval_samples"}
    return {name: metrics[own] for name, own in names.items()}


LIBRARIES = {
    "torch": with_torch,
    "accelerate": with_accelerate,
    "lightning": with_lightning,
    "transformers": with_transformers,
}


def main() -> None:
    library, address, folder = sys.argv[1:]
    if library == "torch":
        dist.init_process_group("gloo")
    data = FeedDataset(address, "fake", epochs=1, restart=True, empty={"label": -100})
    result = LIBRARIES[library](data)
    data.close()
    rank = dist.get_rank()
    (Path(folder) / f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # a thread of PyTorch's may abort the process at the interpreter's end


if __name__ == "__main__":
    main()
