"""Replays of a recording: its server to today's client, and its client to today's server."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import hpack
from tests.compatibility import frames
from tests.compatibility.recording import (
    SERVICE,
    Connection,
    Recording,
    grpc_data,
    split_frames,
    split_messages,
)
from tests.compatibility.session import UNKNOWN

_TIMEOUT_SECONDS = 120.0


@dataclass
class RecordedServer:
    """Answers each connection with what the released server has sent.

    `requests` has today's client's messages by method, as the released schema reads them. Only the
    bytes of the recording are sent; h2 does no more than parse what the client sends.
    """

    recording: Recording
    requests: dict[str, list[Any]] = field(default_factory=dict)

    def handle(self, client: socket.socket) -> None:
        """Serves one connection; a handler of a `Listener`."""
        peer = _Incoming(client)
        method = peer.read_method()
        request_class = self.recording.message_class(
            "StreamBatchesRequest" if method == "StreamBatches" else f"{method}Request"
        )
        first = request_class.FromString(peer.read_message())
        received = self.requests.setdefault(method, [])
        received.append(first)
        connection = self._connection(method, first)
        client.sendall(bytes.fromhex(connection.settings + connection.headers))
        response_class = self.recording.message_class("StreamBatchesResponse")
        asked = answered = 0
        for text in connection.messages:
            message = bytes.fromhex(text)
            if method == "StreamBatches" and response_class.FromString(message).HasField("header"):
                answered += 1
                while asked < answered:  # a server sends no batch that was not requested
                    received.append(request_class.FromString(peer.read_message()))
                    asked += received[-1].HasField("batch")
            client.sendall(frames.frame(frames.DATA, 0, 1, frames.message(message)))
        client.sendall(bytes.fromhex(connection.trailers))
        peer.read_to_end()

    def _connection(self, method: str, request: Any) -> Connection:
        """Returns the recorded connection of a call; two of GetPipeline differ in the name."""
        is_refused = method == "GetPipeline" and request.name == UNKNOWN
        return next(
            connection
            for connection in self.recording.connections
            if connection.method == method and (not connection.messages) == is_refused
        )


class _Incoming:
    """What a client sends on one connection."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self._h2.initiate_connection()
        self._data = b""
        self._method = ""

    def read_method(self) -> str:
        while not self._method:
            self._receive()
        return self._method.removeprefix(SERVICE)

    def read_message(self) -> bytes:
        while not (messages := split_messages(self._data)):
            self._receive()
        self._data = self._data[5 + len(messages[0]) :]
        return messages[0]

    def read_to_end(self) -> None:
        while self._client.recv(1 << 16):
            pass

    def _receive(self) -> None:
        data = self._client.recv(1 << 16)
        if not data:
            raise EOFError("the client closed the connection before its request was complete")
        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self._method = dict(event.headers)[b":path"].decode()
            elif isinstance(event, h2.events.DataReceived):
                self._data += event.data


@dataclass(frozen=True)
class Answer:
    """A server's answer to one recorded connection."""

    status: str
    details: str
    """grpc-status-details-bin, in base64."""
    messages: list[bytes]


def send_recorded(connection: Connection, address: str) -> Answer:
    """Sends the released client's bytes to a server, and returns the answer."""
    host, _, port = address.rpartition(":")
    client = bytes.fromhex(connection.client)
    parts = split_frames(client.removeprefix(frames.PREFACE))
    if not any(kind == frames.DATA and flags & frames.END_STREAM for kind, flags, _, _ in parts):
        client += frames.frame(frames.DATA, frames.END_STREAM, 1)  # the client reset it instead
    received = b""
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS) as server:
        server.sendall(client)
        while not (fields := _trailers(received)):
            if not (data := server.recv(1 << 16)):
                raise EOFError("the server closed the connection before the end of the call")
            received += data
    details = fields.get("grpc-status-details-bin", "")
    return Answer(fields["grpc-status"], details, split_messages(grpc_data(received)))


def answer_of(connection: Connection) -> Answer:
    """Returns the released server's answer; an empty status if the client ended the call."""
    received = bytes.fromhex(connection.settings + connection.headers + connection.trailers)
    fields = _trailers(received)
    messages = [bytes.fromhex(message) for message in connection.messages]
    return Answer(
        fields.get("grpc-status", ""), fields.get("grpc-status-details-bin", ""), messages
    )


def _trailers(received: bytes) -> dict[str, str]:
    """Returns the fields of the frame that ends the call; empty if there is none yet."""
    decoder = hpack.Decoder()
    for kind, flags, body, _ in split_frames(received):
        if kind == frames.HEADERS:
            fields = {str(name): str(value) for name, value in decoder.decode(body)}
            if flags & frames.END_STREAM:
                return fields
    return {}
