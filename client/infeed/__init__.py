"""infeed: ready-to-train batches over gRPC, in a reproducible order, exactly once, resumable.

    with infeed.connect("localhost:7470", "imagenet-train", batch_size=128, epochs=1) as feed:
        for batch in feed:                       # a dict of field name → np.ndarray
            step(batch["image"], batch["label"])
            checkpoint["feed"] = feed.state()    # later: connect(..., state=checkpoint["feed"])
        print(feed.stats())

With TensorFlow, `infeed.tensorflow.from_generator(feed)` is a `tf.data.Dataset`. For tests,
`infeed.testing.FakeTransport` serves arrays without a server.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from infeed.batch import Batch
from infeed.cursor import Shard
from infeed.shared.errors import (
    AuthenticationError,
    ConfigError,
    CursorError,
    FeedClosedError,
    FieldNotFoundError,
    FingerprintError,
    InfeedError,
    InvalidRequestError,
    MissingExtraError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    SampleError,
    SampleNotFoundError,
    ServerError,
    ServerUnavailableError,
    SourceError,
    StallError,
    UserCodeError,
)

if TYPE_CHECKING:
    from infeed.client import connect
    from infeed.feed import Feed
    from infeed.http2.tls_config import TLS
    from infeed.served import spec
    from infeed.shared.doors import Door
    from infeed.stats import Stats

__version__ = "0.2.0"

_LAZY_MODULES = ("grain", "jax", "keras", "tensorflow", "testing", "torch")

_LAZY_NAMES = {
    "Feed": "infeed.feed",
    "Stats": "infeed.stats",
    "TLS": "infeed.http2.tls_config",
    "connect": "infeed.client",
    "spec": "infeed.served",
}
"""Public name → its module. Commands that connect to no server load none of these modules."""


def __getattr__(name: str) -> Any:
    """Imports modules on first use: `import infeed` must not load TensorFlow."""
    if name in _LAZY_MODULES:
        return importlib.import_module(f"infeed.{name}")
    if name in _LAZY_NAMES:
        value = globals()[name] = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
        return value
    if name in _added().names():
        return _added().load(name)
    raise AttributeError(f"module 'infeed' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the public names, without the modules imported here."""
    return sorted([*__all__, *_LAZY_MODULES, *_added().names()])


@cache
def _added() -> Door:
    """Returns the names that installed packages add through the entry point group `infeed`."""
    from infeed.shared.doors import Door  # noqa: PLC0415 - reads the installed packages

    return Door("infeed", "name")


__all__ = [
    "TLS",
    "AuthenticationError",
    "Batch",
    "ConfigError",
    "CursorError",
    "Feed",
    "FeedClosedError",
    "FieldNotFoundError",
    "FingerprintError",
    "InfeedError",
    "InvalidRequestError",
    "MissingExtraError",
    "PermissionDeniedError",
    "PipelineNotFoundError",
    "ProtocolError",
    "SampleError",
    "SampleNotFoundError",
    "ServerError",
    "ServerUnavailableError",
    "Shard",
    "SourceError",
    "StallError",
    "Stats",
    "UserCodeError",
    "__version__",
    "connect",
    "spec",
]
