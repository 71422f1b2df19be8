"""Names of runs: a JSON file with a cursor, or a pipeline with a seed."""

from __future__ import annotations

import json
from pathlib import Path

from infeed.run import Run
from infeed.shared.arguments import MAX_INT64
from infeed.shared.errors import CursorError, InvalidRequestError

_HOLDERS = ("cursor", "state")
"""Keys that hold the cursor in checkpoints of `infeed.torch` and `infeed.keras`."""


def load_run(text: str) -> Run:
    """Returns the run named by a JSON file with a cursor, `PIPELINE`, or `PIPELINE@SEED`. Raises
    `CursorError` for a file without a cursor and `InvalidRequestError` for an invalid seed."""
    path = Path(text)
    if path.is_file() or path.suffix == ".json" or "/" in text:
        return _read(path)
    pipeline, separator, seed = text.partition("@")
    if not pipeline or (separator and not (seed.isdecimal() and int(seed) <= MAX_INT64)):
        raise InvalidRequestError(
            f"run {text!r} is neither a file nor a pipeline with a seed from 0 to 2^63 - 1; give a "
            "file with a cursor, PIPELINE, or PIPELINE@SEED"
        )
    return Run(pipeline, int(seed) if separator else None)


def _read(path: Path) -> Run:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CursorError(
            f"{path}: {reason}; write the result of Feed.state() to the file with json.dump",
            file=path,
        ) from None
    for key in _HOLDERS:
        if isinstance(state, dict) and "pipeline" not in state and isinstance(state.get(key), dict):
            state = state[key]
    try:
        return Run.of(state)
    except CursorError as error:
        raise CursorError(f"{path}: {error.message}", file=path) from None
