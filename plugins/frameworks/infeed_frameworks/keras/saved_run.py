"""Saved run: weights, seeds and cursor in one subfolder, which appears complete or not at all.

The seeds are the states of random generators, such as dropout's, which Keras does not save: a
model's own, and PyTorch's global one, which a dropout without a `seed` uses on its backend.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from keras import Model, Variable, backend, ops

from infeed.cursor import Cursor
from infeed.shared.errors import CursorError, InvalidRequestError

_NAME = re.compile(r"epoch-\d{6}-position-\d{16}")
_UNFINISHED = ".unfinished-"
_STATE_FILE = "feed.json"
_WEIGHTS_FILE = "model.weights.h5"
"""Keras requires the ending."""


@dataclass(frozen=True)
class SavedRun:
    """A saved run: its cursor, and the Keras epoch in which it continues."""

    folder: Path
    state: Mapping[str, Any]
    epoch: int
    seeds: Mapping[str, Any]
    """What `seeds_of` returns; a checkpoint of an older version may have less."""

    @property
    def weights(self) -> Path:
        return self.folder / _WEIGHTS_FILE


def local_folder(directory: str | os.PathLike[str]) -> Path:
    """Returns the path. Raises `InvalidRequestError` if it cannot be a local folder."""
    if "://" in str(directory) or Path(directory).is_file():
        raise InvalidRequestError(
            f"directory must be a local folder, not {str(directory)!r}; to save elsewhere, save "
            "FeedCheckpoint(feed).state() with the model"
        )
    return Path(directory)


def newest_run(folder: Path) -> SavedRun | None:
    """Returns the newest checkpoint in a folder; None if there is none. Raises `CursorError`."""
    if not (found := _complete(folder)):
        return None
    try:
        saved = json.loads((found[-1] / _STATE_FILE).read_text(encoding="utf-8"))
        Cursor.from_json(saved["state"])
        return SavedRun(found[-1], saved["state"], int(saved["epoch"]), saved)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CursorError(
            f"the checkpoint {found[-1]} cannot be read: {type(error).__name__}: {error}; remove "
            "it, or give another folder"
        ) from error


def save_run(run: SavedRun, save_weights: Callable[[str], None]) -> None:
    """Saves a run in a subfolder of its folder, then removes older ones. After a kill, the old or
    the new one is complete."""
    target = run.folder / f"epoch-{run.epoch:06}-position-{run.state['position']:016}"
    if target.exists():
        return
    for left in run.folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left)
    unfinished = run.folder / f"{_UNFINISHED}{target.name}"
    unfinished.mkdir(parents=True)
    save_weights(str(unfinished / _WEIGHTS_FILE))
    document = {"epoch": run.epoch, "state": run.state, **run.seeds}
    (unfinished / _STATE_FILE).write_text(json.dumps(document), encoding="utf-8")
    older = _complete(run.folder)
    unfinished.rename(target)
    for folder in older:
        shutil.rmtree(folder)


def _complete(folder: Path) -> list[Path]:
    """Returns the complete checkpoints, oldest first: their numbers have leading zeros."""
    return sorted(path for path in folder.glob("epoch-*") if _NAME.fullmatch(path.name))


def seeds_of(model: Model) -> dict[str, Any]:
    """Returns the state of each random generator of the model, in the order of its layers, and on
    the torch backend the states of PyTorch's global ones."""
    states: dict[str, Any] = {}
    if backend.backend() == "torch":
        import torch  # noqa: PLC0415 - for its backend alone

        states["cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            states["cuda"] = torch.cuda.get_rng_state()
    return {
        "seeds": [ops.convert_to_numpy(state).tolist() for state in _generators(model)],
        "torch_seeds": {k: b64encode(x.numpy().tobytes()).decode() for k, x in states.items()},
    }


def set_seeds(model: Model, saved: Mapping[str, Any]) -> None:
    """Restores the generators of a model that has as many as were saved."""
    generators, seeds = _generators(model), saved.get("seeds", ())
    if len(seeds) == len(generators):
        for generator, seed in zip(generators, seeds, strict=True):
            generator.assign(np.asarray(seed, generator.dtype))


def set_torch_seeds(saved: Mapping[str, Any]) -> None:
    """Restores PyTorch's generators, on its backend."""
    if backend.backend() == "torch":
        import torch  # noqa: PLC0415 - for its backend alone

        for device, text in saved.get("torch_seeds", {}).items():
            state = torch.frombuffer(bytearray(b64decode(text)), dtype=torch.uint8)
            if device == "cpu":
                torch.set_rng_state(state)
            elif torch.cuda.is_available():
                torch.cuda.set_rng_state(state)


def _generators(model: Any) -> list[Variable]:
    # A layer's variables are its weights, the state of its metrics, and random seeds.
    others = {id(x) for x in (*model.weights, *model.metrics_variables)}
    return [x for x in model.variables if id(x) not in others]
