"""gRPC's health service.

Unlike the servicer of gRPC's own package, it does not keep every name that was ever watched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed_server.rpc.call import ServerCall

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

REASON_METADATA = "infeed-reason-bin"
"""The trailing metadata with the reason for a status, UTF-8."""

_Status = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Reports the statuses of the names that were `set`."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        self._shut_down = False
        self._ended = False
        self._changed = threading.Condition()

    def set(self, name: str, status: int, reason: str = "") -> None:
        """Sets a name's status and notifies its watches. Does nothing after `shut_down`.

        `reason` is in the metadata of the answers to `Check`: their message has no field for it.
        """
        with self._changed:
            if not self._shut_down:
                self._statuses[name] = status
                self._reasons[name] = reason
                self._changed.notify_all()

    def shut_down(self) -> None:
        """Sets all statuses to NOT_SERVING for good."""
        with self._changed:
            self._statuses = dict.fromkeys(self._statuses, _Status.NOT_SERVING)
            self._reasons.clear()
            self._shut_down = True
            self._changed.notify_all()

    def end(self) -> None:
        """Ends all watches with an error."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def Check(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: ServerCall
    ) -> health_pb2.HealthCheckResponse:
        """Returns the status of a name; NOT_FOUND when it is unknown."""
        status = self._statuses.get(request.service)
        if status is None:
            context.set_code(grpc.StatusCode.NOT_FOUND)
        elif reason := self._reasons.get(request.service):
            context.set_trailing_metadata(((REASON_METADATA, reason.encode()),))
        return _Status(status=status)

    def Watch(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: ServerCall
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        """Yields the status now and after every change, until the call ends."""
        last = None
        context.add_callback(self._wake)
        while context.is_active():
            with self._changed:
                status = self._statuses.get(request.service, _Status.SERVICE_UNKNOWN)
                if status == last:
                    if self._ended:
                        context.abort(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
                    if context.is_active():  # checked under the lock, so no `_wake` is missed
                        self._changed.wait()
                    continue
            last = status
            yield _Status(status=status)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
