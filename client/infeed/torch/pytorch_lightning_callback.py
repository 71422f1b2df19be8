"""Callback for the package `pytorch_lightning`, which finds it by an entry point."""

from __future__ import annotations

from pytorch_lightning import Callback

from infeed.torch.lightning_hooks import LightningHooks


class FeedCallback(LightningHooks, Callback):  # type: ignore[misc, unused-ignore]
    """Saves and restores the states of the datasets that a Trainer trains on."""
