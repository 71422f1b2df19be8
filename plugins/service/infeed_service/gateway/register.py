"""The method RegisterDataset, which registers a pipeline for trainers to read from workers."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message

from infeed.shared.arguments import MAX_INT64
from infeed.v1 import feed_service_pb2 as messages
from infeed.v1 import spec_pb2
from infeed_server.engines.base import Engine
from infeed_server.engines.capabilities import requires_other_engine
from infeed_server.serving import request_checks
from infeed_service.dataset import DatasetRequest
from infeed_service.gateway.backend import DataServiceEngine


def register_dataset(
    find: Callable[[str], Engine], message: messages.RegisterDatasetRequest, _: Callable[[], bool]
) -> Message:
    """Registers a data set. Raises `InvalidRequestError` and `FingerprintError`."""
    engine, request = find(message.pipeline), DatasetRequest.from_proto(message)
    spec = engine.spec
    request_checks.check_fingerprint(spec, request.fingerprint)
    batch_size = request_checks.resolve_batch_size(spec, request.batch_size or 0)
    request_checks.check_batch_bytes(spec, batch_size, 0, finish_on_server=False)
    request_checks.parse_run(spec, request.seed, spec_pb2.Lineage())
    request_checks.require_range("epochs", request.epochs, 0, MAX_INT64)
    if not isinstance(engine, DataServiceEngine):
        raise requires_other_engine(engine, "data set to read from workers")
    return engine.register(request).to_proto()
