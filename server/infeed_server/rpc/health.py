"""gRPC's health service, for known names alone."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health, health_pb2

from infeed.shared.errors import InvalidRequestError
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.status import CallError


class HealthServicer(health.HealthServicer):  # type: ignore[misc]
    """Refuses unknown names, each of which grpcio would keep, though callers need no token."""

    def __init__(self) -> None:
        super().__init__(experimental_non_blocking=False)
        self._names = {health.OVERALL_HEALTH}

    def set_serving(self, name: str, serving: bool) -> None:
        """Sets a name's status."""
        status = health_pb2.HealthCheckResponse
        self._names.add(name)
        self.set(name, status.SERVING if serving else status.NOT_SERVING)

    def Check(self, request: health_pb2.HealthCheckRequest, call: ServerCall) -> Any:  # noqa: N802
        """Returns the status of a name."""
        return super().Check(self._known(request), call.context)

    def Watch(self, request: health_pb2.HealthCheckRequest, call: ServerCall) -> Any:  # noqa: N802
        """Returns the status now and after every change."""
        return super().Watch(self._known(request), call.context)

    def _known(self, request: health_pb2.HealthCheckRequest) -> health_pb2.HealthCheckRequest:
        if request.service not in self._names:
            raise CallError(InvalidRequestError("unknown service"), "NOT_FOUND")
        return request
