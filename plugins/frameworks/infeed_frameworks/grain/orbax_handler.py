"""Orbax handler for `ocp.CheckpointManager`: Grain's, but restored on any number of processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grain

from infeed.shared.errors import MissingExtraError
from infeed_frameworks.grain.checkpoint import read_state

try:
    import orbax.checkpoint as ocp
except ImportError:
    raise MissingExtraError(
        "the handlers of infeed.grain need Orbax: pip install orbax-checkpoint"
    ) from None


class CheckpointHandler(grain.checkpoint.CheckpointHandler):  # type: ignore[misc]
    """Grain's handler and files, but restores on any number of processes."""

    def restore(self, directory: Any, item: Any = None, args: Any = None) -> Any:
        """Sets the iterator's state, starts its prefetch, and returns it. Raises `CursorError`."""
        iterator = args.item if item is None else item
        iterator.set_state(read_state(directory))
        iterator.start_prefetch()
        return iterator


@ocp.args.register_with_handler(CheckpointHandler, for_save=True)
@dataclass
class CheckpointSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """Saves the state of `item`, any Grain iterator, as `grain.checkpoint.CheckpointSave` does."""

    item: Any


@ocp.args.register_with_handler(CheckpointHandler, for_restore=True)
@dataclass
class CheckpointRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """Restores the state of `item`, any Grain iterator, saved on any number of processes."""

    item: Any
