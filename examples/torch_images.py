"""Small convolutional network on JPEGs, in PyTorch; it can be killed and started again.

    infeed serve examples/folder_csv_labels.yaml
    python examples/torch_images.py 127.0.0.1:7470 pictures --epochs 10

The checkpoint holds the model, the optimizer and the position in the data, so a killed run ends
with the same weights, bit for bit, as one that was not.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from infeed.torch import FeedDataset


def main() -> None:
    options = parse_arguments()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, options.classes),
    ).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    steps, state = 0, None
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        steps, state = saved["steps"], saved["data"]
        print(f"continues at sample {state['cursor']['position']}", flush=True)

    dataset = FeedDataset(
        options.target, options.pipeline, epochs=1, state=state, device=options.device
    )
    with dataset:
        for epoch in range(dataset.epoch, options.epochs):
            for batch in dataset:  # after a resume, the rest of the epoch
                loss = train_step(model, optimizer, batch)
                steps += 1
                state = dataset.state_dict()
                seen = state["cursor"]["position"]
                print(f"epoch {epoch}, {seen} samples: loss {loss:.6f}", flush=True)
                if steps % options.save_every == 0:
                    saved = {
                        "steps": steps,
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "data": state,
                    }
                    save(saved, options.checkpoint)
    print(f"weights {digest(model)}")


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, Any]) -> float:
    """Trains on one batch and returns its loss."""
    images = batch["image"].permute(0, 3, 1, 2)  # infeed's channels are last
    loss = nn.functional.cross_entropy(model(images), batch["label"].long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def save(checkpoint: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint; the previous one stays if the process is killed here."""
    partial = path.with_suffix(".partial")
    torch.save(checkpoint, partial)
    partial.rename(path)


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
    parser.add_argument("--checkpoint", type=Path, default=Path("torch_images.pt"))
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
