"""Checkpoint folder: weights and cursor in one subfolder, which appears complete or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.cursor import Cursor
from infeed.shared.errors import CursorError, InvalidRequestError

_NAME = re.compile(r"epoch-\d{6}-position-\d{16}")
_UNFINISHED = ".unfinished-"
_STATE_FILE = "feed.json"
_WEIGHTS_FILE = "model.weights.h5"
"""Keras requires the ending."""


@dataclass(frozen=True)
class SavedRun:
    """A run as it was saved: the cursor, and the Keras epoch in which it continues."""

    folder: Path
    state: Mapping[str, Any]
    epoch: int
    seeds: Mapping[str, Any]
    """Has what `seeds_of` returns, except in checkpoints of an older version."""

    @property
    def weights(self) -> Path:
        return self.folder / _WEIGHTS_FILE


class CheckpointFolder:
    """Keeps the newest checkpoint of a run."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises `InvalidRequestError` for what cannot be a local folder."""
        if not isinstance(folder, str | os.PathLike) or "://" in str(folder):
            raise InvalidRequestError(
                f"directory must be the path of a local folder, not {folder!r}; elsewhere, save "
                "FeedCheckpoint(feed).state() with the model"
            )
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidRequestError(f"directory {str(folder)!r} is a file; name a folder")

    def latest(self) -> SavedRun | None:
        """Returns the newest checkpoint; None if there is none. Raises `CursorError`."""
        if not (found := self._checkpoints()):
            return None
        folder = found[-1]
        try:
            document = json.loads((folder / _STATE_FILE).read_text(encoding="utf-8"))
            Cursor.from_json(document["state"])
            return SavedRun(folder, document["state"], int(document["epoch"]), document)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CursorError(
                f"the checkpoint {folder} cannot be read: {type(error).__name__}: {error}; remove "
                "it, or give another folder"
            ) from error

    def save(
        self,
        state: Mapping[str, Any],
        epoch: int,
        save_weights: Callable[[str], None],
        seeds: Mapping[str, Any],
    ) -> None:
        """Saves a checkpoint, then removes older ones. A kill leaves the old one or the new."""
        target = self.folder / f"epoch-{epoch:06}-position-{state['position']:016}"
        if target.exists():
            return
        unfinished = self.folder / f"{_UNFINISHED}{target.name}"
        for left in self.folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left)
        unfinished.mkdir(parents=True)
        save_weights(str(unfinished / _WEIGHTS_FILE))
        document = {"epoch": epoch, "state": dict(state), **seeds}
        (unfinished / _STATE_FILE).write_text(json.dumps(document), encoding="utf-8")
        older = self._checkpoints()
        unfinished.rename(target)
        for folder in older:
            shutil.rmtree(folder)

    def _checkpoints(self) -> list[Path]:
        """Returns the complete checkpoints, oldest first."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        # The numbers have leading zeros.
        return sorted(path for path in found if _NAME.fullmatch(path.name))
