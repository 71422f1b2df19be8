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

if TYPE_CHECKING:
    from infeed_server.pipeline.definition import BatchOptions, Pipeline, Shuffle
    from infeed_server.run.amend import AmendOptions, amend
    from infeed_server.run.diff import DiffOptions, diff
    from infeed_server.runtime.options import ServerOptions
    from infeed_server.runtime.server import Server

# Else C-core writes lines to stderr for failed handshakes, at ERROR still for unknown server names.
# It is read when grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

__all__ = [
    "AmendOptions", "BatchOptions", "DiffOptions", "Pipeline", "Server", "ServerOptions", "Shuffle",
    "amend", "diff",
]  # fmt: skip

_MODULES = {
    "AmendOptions": "infeed_server.run.amend",
    "BatchOptions": "infeed_server.pipeline.definition",
    "DiffOptions": "infeed_server.run.diff",
    "Pipeline": "infeed_server.pipeline.definition",
    "Server": "infeed_server.runtime.server",
    "ServerOptions": "infeed_server.runtime.options",
    "Shuffle": "infeed_server.pipeline.definition",
    "amend": "infeed_server.run.amend",
    "diff": "infeed_server.run.diff",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: TensorFlow takes seconds, and `infeed --help` imports this package.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
