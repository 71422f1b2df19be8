"""Fixtures of all tests of augmentations."""

from __future__ import annotations

from tests.server.transforms.conftest import image, key, run, run_each, run_eagerly, spec

__all__ = ["image", "key", "run", "run_each", "run_eagerly", "spec"]
