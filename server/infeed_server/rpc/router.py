"""Dispatch of gRPC calls to handlers, and their outcome as a status."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from infeed_server.http2.protocol import Headers
from infeed_server.http2.stream import StreamClosedError
from infeed_server.rpc.call import CallCancelledError, ServerCall, StatusError, grpc_frames

log = logging.getLogger(__name__)

_CONTENT_TYPE = "application/grpc"

_LOGGED_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

_MAX_LOGGED_CHARS = 500
"""Length of a logged refusal, which may contain data of the client."""

_REQUEST_TIMEOUT_SECONDS = 10.0
"""From the begin of a unary call's handling to the end of its request."""

_MAX_METHOD_CHARS = 200
"""Length of an unknown method's name in the error."""


@dataclass
class _CallDetails:
    """The argument of a generic handler's `service`."""

    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...] = ()


class Router:
    """A server for gRPC's generated code to register servicers at; handles calls with them."""

    def __init__(self, *handlers: grpc.GenericRpcHandler) -> None:
        self._handlers = list(handlers)

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Does nothing: generated code registers the same methods as generic handlers too."""

    def has_method(self, method: str) -> bool:
        return self._find_handler(method) is not None

    def handle(self, call: ServerCall) -> None:
        """Handles one call, whatever happens in it; returns when it has ended."""
        try:
            if error := _http_error(call.headers):
                call.respond(error)
            else:
                self._handle(call)
        except (StreamClosedError, CallCancelledError):
            pass  # no client waits for the status
        except Exception:  # else the client would wait without end
            log.exception("a call could not be ended")
            call.reset()

    def refuse(self, call: ServerCall, error: StatusError) -> None:
        """Ends a call with `error` instead of handling it."""
        _log_refusal(call, error)
        with contextlib.suppress(StreamClosedError, CallCancelledError):
            if http_error := _http_error(call.headers):
                call.respond(http_error)
            else:
                call.end(error)

    def _handle(self, call: ServerCall) -> None:
        try:
            self._run(call)
        except StatusError as error:
            _log_refusal(call, error)
            call.end(error)
        except CallCancelledError:
            raise
        except Exception as error:  # a bug of a servicer must end the call too
            log.exception("a call of %s failed", call.method)
            call.end(StatusError(grpc.StatusCode.UNKNOWN, type(error).__name__))
        else:
            call.end()

    def _run(self, call: ServerCall) -> None:
        handler = self._find_handler(call.method)
        if handler is None:
            name = repr(call.method[:_MAX_METHOD_CHARS])
            raise StatusError(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")
        parse, serialize = handler.request_deserializer, handler.response_serializer
        messages = call.messages(None if handler.request_streaming else _REQUEST_TIMEOUT_SECONDS)
        requests = _parse(parse, messages) if parse else messages
        request = requests if handler.request_streaming else _single_request(requests)
        responses = _handler_function(handler)(request, call)
        if not handler.response_streaming:
            responses = iter((responses,) if call.ok else ())
        try:
            for response in responses:
                call.send(grpc_frames([serialize(response)]) if serialize else response)
        finally:
            # Run the handler's clean-up now, not when the generator is garbage collected.
            if close := getattr(responses, "close", None):
                close()

    def _find_handler(self, method: str) -> Any:
        details = _CallDetails(method)
        found = (handler.service(details) for handler in self._handlers)
        return next((handler for handler in found if handler is not None), None)


def _log_refusal(call: ServerCall, error: StatusError) -> None:
    if error.code in _LOGGED_CODES:
        log.info("%s was refused: %.*s", call.peer(), _MAX_LOGGED_CHARS, error.details)


def _handler_function(handler: Any) -> Callable[[Any, ServerCall], Any]:
    kind = ("stream" if handler.request_streaming else "unary") + (
        "_stream" if handler.response_streaming else "_unary"
    )
    function: Callable[[Any, ServerCall], Any] = getattr(handler, kind)
    return function


def _single_request(requests: Iterator[Any]) -> Any:
    found = list(islice(requests, 2))
    if len(found) == 1:
        return found[0]
    problem = "more than one" if found else "no"
    raise StatusError(grpc.StatusCode.UNIMPLEMENTED, f"a unary call with {problem} request message")


def _parse(parse: Callable[[bytes], Any], messages: Iterator[bytes]) -> Iterator[Any]:
    for message in messages:
        try:
            yield parse(message)
        except DecodeError:  # an error of the client: not logged
            problem = f"a message of {len(message)} bytes cannot be parsed"
            raise StatusError(grpc.StatusCode.INTERNAL, problem) from None


def _http_error(headers: dict[str, str]) -> Headers | None:
    """Returns the HTTP response to a request that is not gRPC; None for gRPC."""
    if headers.get(":method") != "POST":
        return [(":status", "405"), ("allow", "POST")]
    content = headers.get("content-type", "")
    if content != _CONTENT_TYPE and not content.startswith(
        (f"{_CONTENT_TYPE}+", f"{_CONTENT_TYPE};")
    ):
        return [(":status", "415")]
    return None
