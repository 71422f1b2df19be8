"""Interceptor of every call but health checks: admission, log, metrics, and errors as statuses."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc

from infeed_server.engines.monitor import EndedCall, Monitor
from infeed_server.rpc.admission import Admission, CallRefusedError
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.log_context import logged_call
from infeed_server.rpc.status_error import StatusError
from infeed_server.rpc.trainer_log import TrainerLog

log = logging.getLogger(__name__)

_UNCHECKED_PREFIX = "/grpc.health.v1.Health/"
"""Health checks have no token, reveal nothing else, and hold no thread."""

_LOGGED_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

_MAX_LOGGED_CHARS = 500
"""Characters of a logged refusal, which may contain data of the client."""


class CallInterceptor(grpc.ServerInterceptor):
    """Admits calls, and passes them to handlers as `ServerCall`."""

    def __init__(self, admission: Admission, monitor: Monitor, trainers: TrainerLog) -> None:
        self._admission = admission
        self._monitor = monitor
        self._trainers = trainers

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Returns the handler with the admission around it; None for an unknown method."""
        handler, method = continuation(handler_call_details), handler_call_details.method
        if handler is None or method.startswith(_UNCHECKED_PREFIX):
            return handler
        if not handler.response_streaming:
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: self._unary(method, handler.unary_unary, request, context),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._stream(
                method, handler.stream_stream, requests, context
            ),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _unary(self, method: str, handle: Any, request: Any, context: Any) -> Any:
        with self._call(method, context) as call:
            call.received_bytes = _size(request)
            response = handle(request, call)
            call.sent_bytes = _size(response)
            return response
        return None  # the client has left

    def _stream(
        self, method: str, handle: Any, requests: Iterator[Any], context: Any
    ) -> Iterator[Any]:
        with self._call(method, context) as call:
            for response in handle(_counted(requests, call), call):
                call.sent_bytes += _size(response)
                yield response
                del response  # do not hold its memory while the next one is made

    @contextmanager
    def _call(self, method: str, context: grpc.ServicerContext) -> Iterator[ServerCall]:
        """Yields the admitted call. Ends it with the status of an error."""
        call = ServerCall(method, context)
        self._monitor.on_call_started(method)
        if not call.add_callback(lambda: self._on_end(call)):
            self._on_end(call)
        try:
            with logged_call(call), self._admission.admit(call):
                yield call
        except StatusError as error:
            self._abort(call, context, error)
        except grpc.RpcError:  # the client has cancelled the call, or is lost
            pass
        else:
            call.status = grpc.StatusCode.OK

    def _abort(
        self, call: ServerCall, context: grpc.ServicerContext, error: StatusError
    ) -> NoReturn:
        if isinstance(error, CallRefusedError):
            self._monitor.on_refused(error.refusal)
        if error.code in _LOGGED_CODES:
            log.info("%s was refused: %.*s", call.peer(), _MAX_LOGGED_CHARS, error.details)
        call.status = error.code
        context.set_trailing_metadata(tuple(error.trailers))
        context.abort(error.code, error.details)
        raise AssertionError("abort() returned")

    def _on_end(self, call: ServerCall) -> None:
        """Counts a call that has ended, whichever end has ended it."""
        seconds = time.monotonic() - call.began_at
        self._monitor.on_call(
            EndedCall(call.method, call.status.name, seconds, call.sent_bytes, call.received_bytes)
        )
        if call.feed is not None:
            self._trainers.on_end(call.feed, call.status)


def _counted(requests: Iterator[Any], call: ServerCall) -> Iterator[Any]:
    for request in requests:
        call.received_bytes += _size(request)
        yield request


def _size(message: Any) -> int:
    return len(message) if isinstance(message, bytes) else int(message.ByteSize())
