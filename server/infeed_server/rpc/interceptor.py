"""Interceptor of every call: admission, log, metrics, and errors as statuses."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from infeed.shared.errors import InvalidRequestError, ProtocolError
from infeed_server.engines.monitor import EndedCall, Monitor
from infeed_server.rpc.admission import Admission
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.log_context import log_fields
from infeed_server.rpc.status import CallError, to_call_error
from infeed_server.rpc.trainer_log import TrainerLog

log = logging.getLogger(__name__)

FIRST_MESSAGE_TIMEOUT_SECONDS = 10.0
"""Time for the first message of a call to arrive. Until then the call holds a thread."""

_LOGGED_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

_MAX_LOGGED_CHARS = 500
"""Characters of a logged refusal, which may contain data of the client."""

_UNKNOWN = "unknown"
"""The method of the metrics for calls of unknown ones, whose names the client chooses."""


class CallInterceptor(grpc.ServerInterceptor):
    """Admits calls, and passes them to handlers as `ServerCall`.

    grpcio gets streams of bytes only. It would read the message of a unary call before it calls
    the handler, and wait for it on a thread; and it logs a traceback of each invalid message.
    """

    def __init__(self, admission: Admission, monitor: Monitor, trainers: TrainerLog) -> None:
        self._admission = admission
        self._monitor = monitor
        self._trainers = trainers

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Returns the handler with the admission around it."""
        handler = continuation(handler_call_details)
        call = partial(self._respond, handler, handler_call_details.method)
        return grpc.stream_stream_rpc_method_handler(call)

    def _respond(
        self, handler: Any, method: str, messages: Iterator[bytes], context: Any
    ) -> Iterator[bytes]:
        with self._call(method, handler is not None, context) as call:
            if handler is None:
                raise CallError(ProtocolError("unknown method"), "UNIMPLEMENTED")
            requests = _requests(messages, call, handler.request_deserializer)
            serialize = handler.response_serializer or bytes
            for response in _responses(handler, requests, call):
                message = serialize(response)
                del response  # do not hold its memory while the next one is made
                call.sent_bytes += len(message)
                yield message
                del message

    @contextmanager
    def _call(self, method: str, is_known: bool, context: Any) -> Iterator[ServerCall]:
        """Yields the admitted call. Ends it with the status of an error."""
        call = ServerCall(method, context)
        name = method if is_known else _UNKNOWN
        self._monitor.on_call_started(name)
        if not call.add_callback(lambda: self._on_end(call, name)):
            self._on_end(call, name)
        log_fields.set(lambda: call.log_fields)
        try:
            with self._admission.admit(call):
                yield call
        except grpc.RpcError:  # the client has cancelled the call, or is lost
            pass
        except Exception as error:  # noqa: BLE001 - all errors become statuses
            self._abort(call, context, to_call_error(error))
        else:
            call.status = grpc.StatusCode.OK

    def _abort(self, call: ServerCall, context: Any, error: CallError) -> NoReturn:
        if error.refusal is not None:
            self._monitor.on_refused(error.refusal)
        status = rpc_status.to_status(error.status)
        if status.code in _LOGGED_CODES:
            log.info("%s was refused: %.*s", call.peer(), _MAX_LOGGED_CHARS, status.details)
        call.status = status.code
        context.abort_with_status(status)
        raise AssertionError("abort() returned")

    def _on_end(self, call: ServerCall, name: str) -> None:
        """Counts a call that has ended, whichever end has ended it."""
        seconds = time.monotonic() - call.began_at
        status = call.status.name
        self._monitor.on_call(
            EndedCall(name, status, seconds, call.sent_bytes, call.received_bytes)
        )
        if call.trainer is not None:
            self._trainers.on_end(call.trainer, call.status)


def _requests(
    messages: Iterator[bytes], call: ServerCall, parse: Callable[[bytes], Any] | None
) -> Iterator[Any]:
    """Yields the requests of a call. Cancels it when the first one does not arrive in time."""
    timer = threading.Timer(FIRST_MESSAGE_TIMEOUT_SECONDS, call.cancel)
    timer.daemon = True
    timer.start()
    try:
        for message in messages:
            timer.cancel()
            call.received_bytes += len(message)
            try:
                request = parse(message) if parse else message
            except DecodeError:
                name = parse.__self__.DESCRIPTOR.name  # type: ignore[union-attr]
                text = f"a message of {len(message)} bytes is not a valid {name}"
                raise InvalidRequestError(text) from None
            yield request
    finally:
        timer.cancel()


def _responses(handler: Any, requests: Iterator[Any], call: ServerCall) -> Iterator[Any]:
    if handler.request_streaming:
        yield from handler.stream_stream(requests, call)
        return
    request = next(requests, None)
    if request is None:
        raise InvalidRequestError("a call without a message")
    if handler.response_streaming:
        yield from handler.unary_stream(request, call)
    else:
        yield handler.unary_unary(request, call)
