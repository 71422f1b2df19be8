"""gRPC's health service, with the reasons for a status, and for known names alone."""

from __future__ import annotations

from collections.abc import Iterator

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

    def set_serving(self, name: str, serving: bool, reason: str = "") -> None:
        """Sets a name's status; answers to `Check` have the reason in their metadata."""
        status = health_pb2.HealthCheckResponse
        self._reasons[name] = reason
        self.set(name, status.SERVING if serving else status.NOT_SERVING)

    def Check(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, call: ServerCall
    ) -> health_pb2.HealthCheckResponse:
        """Returns the status of a name; NOT_FOUND when it is unknown."""
        if reason := self._reason(request.service):
            call.set_trailers(((REASON_METADATA, reason.encode()),))
        return super().Check(request, call)

    def Watch(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, call: ServerCall
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        """Returns the status now and after every change; NOT_FOUND when the name is unknown."""
        self._reason(request.service)
        watched: Iterator[health_pb2.HealthCheckResponse] = super().Watch(request, call)
        return watched

    def _reason(self, name: str) -> str:
        try:
            return self._reasons[name]
        except KeyError:
            raise CallError(InvalidRequestError("unknown service"), "NOT_FOUND") from None
