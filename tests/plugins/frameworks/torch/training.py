"""A small training whose weights show every bit of its batches and their order."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))


def optimizer(of: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(of.parameters(), lr=0.01)


def loss(of: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    x = batch["x"][:, None] / 26
    return nn.functional.mse_loss(of(x), torch.sin(7 * x))


def weights(of: nn.Module) -> list[float]:
    return torch.cat([x.detach().flatten() for x in of.parameters()]).tolist()


class Run:
    """A training loop with its model and optimizer."""

    def __init__(self) -> None:
        self.model = model()
        self.optimizer = optimizer(self.model)

    def step(self, batch: dict[str, Any]) -> None:
        self.optimizer.zero_grad()
        loss(self.model, batch).backward()
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
