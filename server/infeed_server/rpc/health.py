"""gRPC's health service, with the reasons for a status, and for known names alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.status_error import StatusError

REASON_METADATA = "infeed-reason-bin"
"""The trailing metadata with the reason for a status, UTF-8."""

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Statuses by name. grpcio's servicer keeps every name that was ever watched, though its
    callers need no token, and has no place for reasons."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._statuses: dict[str, tuple[int, str]] = {"": (_SERVING, "")}
        self._ended = False

    def set(self, service: str, serving: bool, reason: str = "") -> None:
        """Sets a name's status and notifies its watches.

        `reason` is in the metadata of the answers to `Check`: their message has no field for it.
        """
        with self._changed:
            if not self._ended:
                self._statuses[service] = (_SERVING if serving else _NOT_SERVING, reason)
                self._changed.notify_all()

    def end(self) -> None:
        """Sets all statuses to NOT_SERVING for good. Watches end after it."""
        with self._changed:
            self._ended = True
            self._statuses = dict.fromkeys(self._statuses, (_NOT_SERVING, ""))
            self._changed.notify_all()

    def Check(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, call: ServerCall
    ) -> health_pb2.HealthCheckResponse:
        """Returns the status of a name; NOT_FOUND when it is unknown."""
        status, reason = self._status(request.service)
        if reason:
            call.set_trailers(((REASON_METADATA, reason.encode()),))
        return health_pb2.HealthCheckResponse(status=status)

    def Watch(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, call: ServerCall
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        """Yields the status now and after every change; NOT_FOUND when the name is unknown."""
        call.add_callback(self._wake)  # or the end of the call would not end a wait
        last: int | None = None
        while True:
            with self._changed:
                while (status := self._status(request.service)[0]) == last:
                    if self._ended or not call.is_active():
                        return
                    self._changed.wait()
            last = status
            yield health_pb2.HealthCheckResponse(status=status)

    def _status(self, service: str) -> tuple[int, str]:
        try:
            return self._statuses[service]
        except KeyError:
            raise StatusError(grpc.StatusCode.NOT_FOUND, "unknown service") from None

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
