"""Small convolutional network on JPEGs, with Accelerate, on one process or several; resumes.

    infeed serve examples/folder_csv_labels.yaml
    accelerate launch examples/accelerate_images.py 127.0.0.1:7470 pictures --epochs 10

Model and optimizer go through `prepare`, but the dataset does not: each process reads its own part
of each step. A killed job continues when the same number of processes is started again.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

from infeed.torch import FeedDataset


def main() -> None:
    options = parse_arguments()
    set_seed(0)
    accelerator = Accelerator()
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, options.classes),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    model, optimizer = accelerator.prepare(model, optimizer)
    dataset = FeedDataset(options.target, options.pipeline, epochs=1, device=accelerator.device)
    accelerator.register_for_checkpointing(dataset)
    step = max((int(path.name) for path in options.output.glob("[0-9]*")), default=0)
    if step:
        accelerator.load_state(str(options.output / str(step)))
        accelerator.print(f"continues after step {step}", flush=True)

    with dataset:
        for epoch in range(dataset.epoch, options.epochs):
            for batch in dataset:  # after a resume, the rest of the epoch
                images = batch["image"].permute(0, 3, 1, 2)  # infeed's channels are last
                loss = nn.functional.cross_entropy(model(images), batch["label"].long())
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                step += 1
                accelerator.print(f"epoch {epoch}, step {step}: loss {loss:.6f}", flush=True)
                if step % options.save_every == 0:
                    save(accelerator, options.output, step)
    accelerator.print(f"weights {digest(model)}")
    accelerator.end_training()


def save(accelerator: Accelerator, folder: Path, step: int) -> None:
    """Writes a checkpoint; the previous one stays if the processes are killed here."""
    accelerator.save_state(str(folder / "partial"))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        older = [*folder.glob("[0-9]*")]
        (folder / "partial").rename(folder / str(step))
        for path in older:
            shutil.rmtree(path)
    accelerator.wait_for_everyone()  # no process writes into the folder before it is renamed


def digest(model: nn.Module) -> str:
    """Returns a hash of all bits of the weights."""
    hashed = hashlib.sha256()
    for parameter in model.parameters():
        hashed.update(parameter.detach().cpu().numpy().tobytes())
    return hashed.hexdigest()[:16]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="address of the server")
    parser.add_argument("pipeline", help="name of a pipeline with the fields image and label")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("accelerate_images"))
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    return parser.parse_args()


if __name__ == "__main__":
    main()
