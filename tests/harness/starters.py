"""Drafts of `infeed init`, as text and as definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from infeed_tools.init.detect import starter_for
from infeed_tools.init.draft import Draft


def text(data: Path, path: str) -> str:
    return starter_for(str(data / path), data).text("infeed init", "pipelines.yaml")


def draft(data: Path, path: str) -> Draft:
    """Returns the first draft."""
    return next(iter(starter_for(str(data / path), data).drafts.values()))


def definitions(data: Path, path: str) -> dict[str, Any]:
    value = yaml.safe_load(text(data, path))
    assert isinstance(value, dict)
    return dict(value["pipelines"])


def names(pipeline: dict[str, Any]) -> list[str]:
    return [next(iter(step)) for step in pipeline["transforms"]]


def drafts(path: Path, **options: Any) -> dict[str, Draft]:
    return starter_for(str(path), path.parent, **options).drafts
