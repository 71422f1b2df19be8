"""gRPC's health service. A watch leaves nothing behind, whatever the name that was watched.

The servicer of gRPC's own package keeps every name that anybody ever watched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed_server.rpc.call import ServerCall

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

_Status = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Answers for the names that `set` has told."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {}
        self._ending = False
        self._changed = threading.Condition()

    def set(self, name: str, status: int) -> None:
        """Tells those who watch, too. Does nothing once `end` was called."""
        with self._changed:
            if not self._ending:
                self._statuses[name] = status
                self._changed.notify_all()

    def end(self) -> None:
        """Nothing is serving from now on."""
        with self._changed:
            self._statuses = dict.fromkeys(self._statuses, _Status.NOT_SERVING)
            self._ending = True
            self._changed.notify_all()

    def Check(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: ServerCall
    ) -> health_pb2.HealthCheckResponse:
        """The status now; NOT_FOUND for a name that is not known."""
        status = self._statuses.get(request.service)
        if status is None:
            context.set_code(grpc.StatusCode.NOT_FOUND)
        return _Status(status=status)

    def Watch(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: ServerCall
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        """The status now and after every change, until the peer leaves."""
        told = None
        context.add_callback(self._wake)
        while context.is_active():
            with self._changed:
                status = self._statuses.get(request.service, _Status.SERVICE_UNKNOWN)
                if status == told:
                    if context.is_active():  # asked under the lock: its end cannot be missed
                        self._changed.wait()
                    continue
            told = status
            yield _Status(status=status)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
