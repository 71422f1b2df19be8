"""gRPC's health service, with the reasons for a status, and for known names alone."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

REASON_METADATA = "infeed-reason-bin"
"""The trailing metadata with the reason for a status, UTF-8."""


class HealthServicer(health.HealthServicer):  # type: ignore[misc]
    """grpcio's servicer. Its `Watch` keeps every name that was ever watched, and no caller has a
    token: so it takes the names that were `set` only."""

    def __init__(self) -> None:
        super().__init__()
        self._reasons: dict[str, str] = {"": ""}

    def set(self, service: str, status: int, reason: str = "") -> None:
        """Sets a name's status and notifies its watches.

        `reason` is in the metadata of the answers to `Check`: their message has no field for it.
        """
        self._reasons[service] = reason
        super().set(service, status)

    def enter_graceful_shutdown(self) -> None:
        """Sets all statuses to NOT_SERVING for good."""
        self._reasons = dict.fromkeys(self._reasons, "")
        super().enter_graceful_shutdown()

    def Check(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Returns the status of a name; NOT_FOUND when it is unknown."""
        if reason := self._reasons.get(request.service):
            context.set_trailing_metadata(((REASON_METADATA, reason.encode()),))
        return super().Check(request, context)

    def Watch(  # noqa: N802 - gRPC's name
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.ServicerContext,
        send_response_callback: Any = None,
    ) -> Any:
        """Sends the status now and after every change; NOT_FOUND when the name is unknown."""
        if request.service not in self._reasons:
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return super().Watch(request, context, send_response_callback)
