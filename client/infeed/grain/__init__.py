"""Grain adapters: the only package of the client that imports Grain.

`FeedDataset` is a `grain.IterDataset` over the batches of a feed, and its iterator's state is the
feed's cursor. `Checkpointable`, `CheckpointSave` and `CheckpointRestore` save the state of any
Grain iterator with Orbax, and restore it on another number of processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infeed.shared.errors import MissingExtraError

try:
    import grain  # noqa: F401 - only to see whether it is installed
except ImportError:
    raise MissingExtraError("infeed.grain needs Grain: pip install 'infeed[grain]'") from None

from infeed.grain.checkpoint import Checkpointable, read_state
from infeed.grain.dataset import FeedDataset
from infeed.grain.iterator import FeedIterator

if TYPE_CHECKING:
    from infeed.grain.orbax_handler import CheckpointHandler, CheckpointRestore, CheckpointSave

__all__ = [
    "CheckpointHandler",
    "CheckpointRestore",
    "CheckpointSave",
    "Checkpointable",
    "FeedDataset",
    "FeedIterator",
    "read_state",
]

_ORBAX_NAMES = ("CheckpointHandler", "CheckpointRestore", "CheckpointSave")


def __getattr__(name: str) -> Any:
    # Imported on first use: these need Orbax, which takes seconds.
    if name not in _ORBAX_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import orbax.checkpoint  # noqa: F401, PLC0415 - only to see whether it is installed
    except ImportError:
        raise MissingExtraError(
            f"infeed.grain.{name} needs Orbax: pip install orbax-checkpoint"
        ) from None
    from infeed.grain import orbax_handler  # noqa: PLC0415

    return getattr(orbax_handler, name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
