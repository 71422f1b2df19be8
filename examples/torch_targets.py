"""Small detection or segmentation training in PyTorch, on boxes or masks that move with pictures.

    infeed init data/coco
    infeed serve pipelines.yaml
    python examples/torch_targets.py 127.0.0.1:7470 coco-train2017 --classes 80

A pipeline with the field `mask` trains a class for each pixel. One with `boxes`, corners in pixels,
trains a grid: a cell predicts the class, size and place of the boxes whose centres it holds.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import infeed.torch

STRIDE = 8
"""Pixels of a cell of the grid."""


def network(outputs: int) -> nn.Module:
    """Returns a network with this number of outputs for each cell."""
    layers: list[nn.Module] = []
    for channels, more in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels, more, 3, 2, 1), nn.BatchNorm2d(more), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, outputs, 1))


def mask_loss(outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the cross-entropy of the pixels; 255 is no class."""
    mask = batch["mask"][..., 0].long()
    full = functional.interpolate(outputs, mask.shape[1:], mode="bilinear")
    return functional.cross_entropy(full, mask, ignore_index=255)


def box_loss(outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the loss of the classes of all cells, and of the boxes of those that have one."""
    boxes, counts = batch["boxes"], batch["boxes_count"]
    slot, row = torch.nonzero(torch.arange(boxes.shape[1]) < counts[:, None], as_tuple=True)
    begin, end = boxes[slot, row].split(2, dim=1)
    center, size = (begin + end) / 2 / STRIDE, (end - begin) / STRIDE
    limit = torch.tensor(outputs.shape[:1:-1]) - 1
    x, y = torch.minimum(center.long(), limit).unbind(1)
    scores, places = outputs[:, :-4], outputs[:, -4:].permute(0, 2, 3, 1)
    wanted = torch.zeros_like(scores)
    wanted[slot, batch["label"][slot, row].long(), y, x] = 1
    found = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
    near = torch.cat([center - torch.stack([x, y], 1), size.clamp(min=0.1).log()], 1)
    placed = functional.smooth_l1_loss(places[slot, y, x], near, reduction="sum")
    return (found + placed) / max(len(slot), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("pipeline")
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(0)
    with infeed.torch.connect(options.target, options.pipeline) as feed:
        model: Any = None
        for step, batch in zip(range(options.steps), feed, strict=False):
            has_masks = "mask" in batch
            if model is None:
                model = network(options.classes + 4 * (not has_masks))
                optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
            outputs = model(batch["image"].permute(0, 3, 1, 2))
            loss = (mask_loss if has_masks else box_loss)(outputs, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
