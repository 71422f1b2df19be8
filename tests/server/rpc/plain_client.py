"""HTTP/2 client of the tests that enforces nothing, and reads only in calls that read."""

from __future__ import annotations

import contextlib
import socket

import h2.config
import h2.connection
import h2.events
import h2.settings

MAX_WINDOW = (1 << 31) - 1


class PlainClient:
    """A connection; `window` is the flow-control window of its streams."""

    def __init__(self, port: int, window: int = MAX_WINDOW) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        code = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
        self._h2.local_settings = h2.settings.Settings(client=True, initial_values={code: window})
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(MAX_WINDOW - (1 << 16) + 1)
        self._flush()

    def call(self, method: str, *messages: bytes) -> int:
        """Opens a call, sends messages on it, and leaves it open."""
        stream_id = self._h2.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "s")]
        headers += [("content-type", "application/grpc"), ("te", "trailers")]
        self._h2.send_headers(stream_id, headers)
        for message in messages:
            self._h2.send_data(stream_id, b"\0" + len(message).to_bytes(4, "big") + message)
        self._flush()
        return stream_id

    def await_end(self, stream_id: int) -> None:
        """Reads until the server ends or resets a stream."""
        ends = h2.events.StreamEnded, h2.events.StreamReset
        while data := self.socket.recv(1 << 16):
            for event in self._h2.receive_data(data):
                if isinstance(event, ends) and event.stream_id == stream_id:
                    return
            self._flush()
        raise AssertionError("the connection ended")

    def read_to_end(self) -> None:
        with contextlib.suppress(ConnectionError):
            while self.socket.recv(1 << 20):
                pass

    def _flush(self) -> None:
        self.socket.sendall(self._h2.data_to_send())
