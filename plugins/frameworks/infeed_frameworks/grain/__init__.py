"""Grain adapters: a dataset of batches, and checkpoints with Orbax."""
