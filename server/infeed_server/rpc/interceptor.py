"""Interceptor of every call: admission, log, metrics, and errors as statuses."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from infeed.shared.errors import InvalidRequestError, ProtocolError
from infeed_server.engines.monitor import Monitor
from infeed_server.rpc.admission import Admission
from infeed_server.rpc.call import ServerCall, log_trainer
from infeed_server.rpc.log_context import log_fields
from infeed_server.rpc.status import CallError, to_call_error

log = logging.getLogger(__name__)

FIRST_MESSAGE_TIMEOUT_SECONDS = 10.0
"""Time for the first message of a call to arrive. Until then the call holds a thread."""

_LOGGED_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

_MAX_LOGGED_CHARS = 500
"""Maximum characters of a logged refusal, which may contain the client's data."""


class CallInterceptor(grpc.ServerInterceptor):
    """Admits calls, and passes them to handlers as `ServerCall`. grpcio sees all of them as streams
    of bytes: it would hold a thread while it reads a unary call's message, before it calls the
    handler, and log a traceback for each invalid message."""

    def __init__(self, admission: Admission, monitor: Monitor) -> None:
        self._admission = admission
        self._monitor = monitor

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Returns the handler, wrapped in the admission."""
        handler = continuation(handler_call_details)
        respond = partial(self._respond, handler, handler_call_details.method)
        return grpc.stream_stream_rpc_method_handler(respond)

    def _respond(
        self, handler: Any, method: str, messages: Iterator[bytes], context: Any
    ) -> Iterator[bytes]:
        """Yields the responses of a call. Ends it with the status of an error."""
        call = ServerCall(method, context)
        name = method if handler else "unknown"  # the client chooses an unknown method's name
        self._monitor.count("grpc_server_call_started", _grpc_name(name))
        on_end = partial(self._on_end, call, name)
        if not context.add_callback(on_end):
            on_end()
        log_fields.set(call.log_fields)
        try:
            with self._admission.admit(call):
                for response in _responses(handler, messages, call):
                    message = (handler.response_serializer or bytes)(response)
                    del response  # do not hold its memory while the next one is made
                    call.sent_bytes += len(message)
                    yield message
                    del message
        except grpc.RpcError:  # the client has cancelled the call, or is lost
            pass
        except Exception as error:  # noqa: BLE001 - all errors become statuses
            self._abort(call, to_call_error(error))
        else:
            call.status = grpc.StatusCode.OK

    def _abort(self, call: ServerCall, error: CallError) -> None:
        if error.refusal is not None:
            self._monitor.count("infeed_refused", error.refusal)
        status = rpc_status.to_status(error.status)
        if status.code in _LOGGED_CODES:
            log.info("%s was refused: %.*s", call.peer(), _MAX_LOGGED_CHARS, status.details)
        call.status = status.code
        call.context.abort_with_status(status)

    def _on_end(self, call: ServerCall, name: str) -> None:
        """Counts and logs a call that the client or the server has ended."""
        seconds, status = time.monotonic() - call.began_at, call.status.name
        self._monitor.count("infeed_calls", name, status)
        for metric, value in (
            ("duration_seconds", seconds),
            ("sent_total_compressed_message_size_bytes", call.sent_bytes),
            ("rcvd_total_compressed_message_size_bytes", call.received_bytes),
        ):
            self._monitor.measure(f"grpc_server_call_{metric}", value, _grpc_name(name), status)
        if call.trainer is not None and call.trainer.position is not None:
            has_left = call.status in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)
            log_trainer("left" if has_left else f"ended with {call.status.name}", call.trainer)


def _grpc_name(method: str) -> str:
    """Returns a method's name as gRPC's A66 defines it: without the leading slash, or `other`."""
    return "other" if method == "unknown" else method.removeprefix("/")


def _responses(handler: Any, messages: Iterator[bytes], call: ServerCall) -> Iterator[Any]:
    if handler is None:
        raise CallError(ProtocolError("unknown method"), "UNIMPLEMENTED")
    requests = _requests(messages, call, handler.request_deserializer or bytes)
    if handler.request_streaming:
        yield from handler.stream_stream(requests, call)
        return
    request = next(requests, None)
    if request is None:
        raise InvalidRequestError("the call has no message")
    if handler.response_streaming:
        yield from handler.unary_stream(request, call)
    else:
        yield handler.unary_unary(request, call)


def _requests(
    messages: Iterator[bytes], call: ServerCall, parse: Callable[[bytes], Any]
) -> Iterator[Any]:
    """Yields the requests of a call. Cancels it when the first one does not arrive in time."""
    timer = threading.Timer(FIRST_MESSAGE_TIMEOUT_SECONDS, call.context.cancel)
    timer.daemon = True
    timer.start()
    try:
        for message in messages:
            timer.cancel()
            call.received_bytes += len(message)
            try:
                request = parse(message)
            except DecodeError:
                name = parse.__self__.DESCRIPTOR.name  # type: ignore[attr-defined]
                text = f"a message of {len(message)} bytes is not a valid {name}"
                raise InvalidRequestError(text) from None
            yield request
    finally:
        timer.cancel()
