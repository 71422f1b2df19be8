"""gRPC's health service, with the reasons for a status, and for known names alone."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health, health_pb2

from infeed.shared.errors import InvalidRequestError
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.status import CallError

REASON_METADATA = "infeed-reason-bin"
"""The trailing metadata with the reason for a status, UTF-8."""


class HealthServicer(health.HealthServicer):  # type: ignore[misc]
    """Refuses unknown names: grpcio would keep each that was ever watched, though callers need no
    token."""

    def __init__(self) -> None:
        super().__init__(experimental_non_blocking=False)
        self._reasons = {health.OVERALL_HEALTH: ""}

    def set_serving(self, name: str, serving: bool, reason: str) -> None:
        """Sets a name's status; answers to `Check` have the reason in their metadata."""
        status = health_pb2.HealthCheckResponse
        self._reasons[name] = reason
        self.set(name, status.SERVING if serving else status.NOT_SERVING)

    def Check(self, request: health_pb2.HealthCheckRequest, call: ServerCall) -> Any:  # noqa: N802
        """Returns the status of a name; NOT_FOUND when it is unknown."""
        if reason := self._reason(request.service):
            call.context.set_trailing_metadata(((REASON_METADATA, reason.encode()),))
        return super().Check(request, call.context)

    def Watch(self, request: health_pb2.HealthCheckRequest, call: ServerCall) -> Any:  # noqa: N802
        """Returns the status now and after every change; NOT_FOUND when the name is unknown."""
        self._reason(request.service)
        return super().Watch(request, call.context)

    def _reason(self, name: str) -> str:
        if name not in self._reasons:
            raise CallError(InvalidRequestError("unknown service"), "NOT_FOUND")
        return self._reasons[name]
