"""The server of infeed: sources, transforms, pipelines, and the processes that serve them.

from infeed_server import Pipeline, Server
from infeed_server.pipeline.load import parse

pipeline = parse({"source": {"arrays": "train.npz"}, "batch": {"size": 32}})
with Server({"train": pipeline}) as server:
    ...  # infeed.connect(str(server.address), "train")
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from infeed.shared.doors import Door

if TYPE_CHECKING:
    from infeed_server.pipeline.definition import BatchOptions, Pipeline, Shuffle
    from infeed_server.runtime.options import ServerOptions
    from infeed_server.runtime.server import Server

# Else C-core writes lines to stderr for failed handshakes, at ERROR still for unknown server names.
# It is read when grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

__all__ = ["BatchOptions", "Pipeline", "Server", "ServerOptions", "Shuffle"]

_ADDED = Door("infeed_server", "name")

_MODULES = {
    "BatchOptions": "infeed_server.pipeline.definition",
    "Pipeline": "infeed_server.pipeline.definition",
    "Server": "infeed_server.runtime.server",
    "ServerOptions": "infeed_server.runtime.options",
    "Shuffle": "infeed_server.pipeline.definition",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: TensorFlow takes seconds, and `infeed --help` imports this package.
    if name in _ADDED.names():
        return _ADDED.load(name)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted([*__all__, *_ADDED.names()])
