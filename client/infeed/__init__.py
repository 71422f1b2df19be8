"""infeed: ready-to-train batches over gRPC.

A server decodes, augments and batches; a trainer takes the batches in a reproducible order,
exactly once, and goes on at any step:

    import infeed

    with infeed.connect("localhost:8470", "imagenet-train", batch_size=128, epochs=1) as feed:
        for batch in feed:                       # a dict of field name → np.ndarray
            step(batch["image"], batch["label"])
            checkpoint["feed"] = feed.state()    # later: connect(..., state=checkpoint["feed"])
        print(feed.stats())

With TensorFlow, `infeed.tensorflow.from_generator(feed)` is a `tf.data.Dataset` that Keras' `fit`
takes as it is, and `infeed.tensorflow.distribute` reads a pipeline of TensorFlow's data service
straight from its workers. Without a server, `infeed.testing.FakeTransport` serves arrays in
process.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from infeed.batch import Batch
from infeed.cursor import Shard
from infeed.errors import (
    AuthenticationError,
    ConfigError,
    CursorError,
    FeedClosedError,
    FingerprintError,
    InfeedError,
    InvalidRequestError,
    MissingExtraError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    SampleError,
    ServerError,
    ServerUnavailableError,
    SourceError,
    StallError,
    UserCodeError,
)
from infeed.feed import Feed, connect
from infeed.stats import Stats
from infeed.tls import TLS

__version__ = "0.1.0"

_ON_DEMAND = ("tensorflow", "testing")


def __getattr__(name: str) -> ModuleType:
    """`infeed.tensorflow` after a plain `import infeed`, which must not load TensorFlow."""
    if name in _ON_DEMAND:
        return importlib.import_module(f"infeed.{name}")
    raise AttributeError(f"module 'infeed' has no attribute {name!r}")


__all__ = [
    "TLS",
    "AuthenticationError",
    "Batch",
    "ConfigError",
    "CursorError",
    "Feed",
    "FeedClosedError",
    "FingerprintError",
    "InfeedError",
    "InvalidRequestError",
    "MissingExtraError",
    "PermissionDeniedError",
    "PipelineNotFoundError",
    "ProtocolError",
    "SampleError",
    "ServerError",
    "ServerUnavailableError",
    "Shard",
    "SourceError",
    "StallError",
    "Stats",
    "UserCodeError",
    "__version__",
    "connect",
]
