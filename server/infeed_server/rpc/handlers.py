"""Which handler answers a call, and what its outcome is on the wire."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from infeed_server.http2.stream import GoneError, Headers, Stream
from infeed_server.rpc.call import PeerGoneError, ServerCall, StatusError, framed

log = logging.getLogger(__name__)

_CONTENT = "application/grpc"
_INTERNAL_ERROR = 2

_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

_MAX_LOGGED = 500
"""Characters of a refusal: it may hold what the peer has sent."""

_MAX_NAME = 200
"""Characters of an unknown method that are told back."""


@dataclass
class _Details:
    """What a generic handler is asked with."""

    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...] = ()


def _anybody(call: ServerCall) -> None:
    """Admits every call."""


class Handlers:
    """Takes what gRPC's generated code registers at a server, and answers calls with it."""

    def __init__(
        self, *handlers: grpc.GenericRpcHandler, admit: Callable[[ServerCall], None] = _anybody
    ) -> None:
        """`admit` finds out who makes a call, or raises `StatusError`."""
        self._handlers = list(handlers)
        self._admit = admit

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Generated code tells the same methods a second time, in another form."""

    def answer(self, stream: Stream) -> None:
        """Answers one call, whatever happens in it; returns when it is over."""
        try:
            if problem := _http_problem(stream.headers):
                stream.send_headers([*problem, ("content-length", "0")], end=True)
            else:
                self._answer(ServerCall(stream))
        except (GoneError, PeerGoneError):
            pass  # Nobody waits for the answer any more.
        except Exception:  # or its peer would wait for ever
            log.exception("a call could not be ended")
            stream.reset(_INTERNAL_ERROR)

    def refuse(self, stream: Stream, problem: StatusError) -> None:
        """Ends a call that is not answered."""
        call = ServerCall(stream)
        _note(call, problem)
        with contextlib.suppress(GoneError, PeerGoneError):
            call.end(problem)

    def _answer(self, call: ServerCall) -> None:
        try:
            self._run(call)
        except StatusError as error:
            _note(call, error)
            call.end(error)
        except PeerGoneError:
            raise
        except Exception as error:  # a servicer's own mistake must not leave its peer waiting
            log.exception("a call of %s failed", call.method)
            call.end(StatusError(grpc.StatusCode.UNKNOWN, type(error).__name__))
        else:
            call.end()

    def _run(self, call: ServerCall) -> None:
        self._admit(call)
        handler = self._find(call.method)
        if handler is None:
            name = repr(call.method[:_MAX_NAME])
            raise StatusError(grpc.StatusCode.UNIMPLEMENTED, f"no method {name}")
        parse, serialize = handler.request_deserializer, handler.response_serializer
        requests = _parsed(parse, call.messages()) if parse else call.messages()
        request = requests if handler.request_streaming else _only(requests)
        answers = _behaviour(handler)(request, call)
        if not handler.response_streaming:
            answers = iter((answers,) if call.ok else ())
        try:
            for answer in answers:
                call.send(framed([serialize(answer)]) if serialize else answer)
        finally:
            # A peer that is gone ends it here and now, not when the interpreter comes to it.
            if close := getattr(answers, "close", None):
                close()

    def _find(self, method: str) -> Any:
        details = _Details(method)
        found = (handler.service(details) for handler in self._handlers)
        return next((handler for handler in found if handler is not None), None)


def _note(call: ServerCall, problem: StatusError) -> None:
    """Tells the log whom this server did not let in."""
    if problem.code in _REFUSALS:
        log.info("%s was refused: %.*s", call.peer(), _MAX_LOGGED, problem.details)


def _behaviour(handler: Any) -> Callable[[Any, ServerCall], Any]:
    kind = ("stream" if handler.request_streaming else "unary") + (
        "_stream" if handler.response_streaming else "_unary"
    )
    behaviour: Callable[[Any, ServerCall], Any] = getattr(handler, kind)
    return behaviour


def _only(requests: Iterator[Any]) -> Any:
    for request in requests:
        return request
    raise StatusError(grpc.StatusCode.UNIMPLEMENTED, "a call without its request")


def _parsed(parse: Callable[[bytes], Any], messages: Iterator[bytes]) -> Iterator[Any]:
    for message in messages:
        try:
            yield parse(message)
        except DecodeError:  # the peer's mistake: nothing for the log
            why = f"a message of {len(message)} bytes that is not what the method takes"
            raise StatusError(grpc.StatusCode.INTERNAL, why) from None


def _http_problem(headers: dict[str, str]) -> Headers | None:
    """How HTTP answers a request that is no gRPC."""
    if headers.get(":method") != "POST":
        return [(":status", "405"), ("allow", "POST")]
    content = headers.get("content-type", "")
    if content != _CONTENT and not content.startswith((f"{_CONTENT}+", f"{_CONTENT};")):
        return [(":status", "415")]
    return None
