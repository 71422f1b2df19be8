"""Recorder of the wire of this release: run once when a version is released.

    python -m tests.compatibility.record

Plays the session between today's client and today's server through a proxy, and writes
recordings/VERSION. A recording is never written again: it is what that release sent.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import hpack
from tests.compatibility import frames, recording, session
from tests.harness.listener import Listener

import infeed
from infeed.v1 import stream_pb2

_REPORT_SECONDS = 2.5
"""Time until both ends have exchanged reports, which are part of the recording."""

_DROPPED = (frames.RST, frames.PING, frames.GOAWAY)


class _Tap:
    """Both directions of one connection."""

    def __init__(self) -> None:
        self.sent = {"client": bytearray(), "server": bytearray()}

    def pump(self, name: str, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.sent[name] += data
                sink.sendall(data)
        # A client that has closed reads no status that says so.
        how = socket.SHUT_RDWR if name == "client" else socket.SHUT_WR
        with contextlib.suppress(OSError):
            sink.shutdown(how)

    def connection(self) -> recording.Connection:
        """Returns the recording of the connection, without what depends on timing."""
        client = bytes(self.sent["client"]).removeprefix(frames.PREFACE)
        kept, method = [], ""
        for kind, _, body, whole in recording.split_frames(client):
            if kind == frames.HEADERS:
                method = dict(hpack.Decoder().decode(body))[":path"]
            if kind not in _DROPPED:
                kept.append(whole)
        settings, headers, data = b"", [], b""
        for kind, flags, body, whole in recording.split_frames(bytes(self.sent["server"])):
            settings += whole if kind == frames.SETTINGS and not flags else b""
            headers += [whole] if kind == frames.HEADERS else []
            data += body if kind == frames.DATA else b""
        messages = recording.split_messages(data)
        if method.endswith("StreamBatches"):
            parse = stream_pb2.StreamBatchesResponse.FromString
            messages = [item for item in messages if not parse(item).HasField("heartbeat")]
        return recording.Connection(
            method=method.removeprefix(recording.SERVICE),
            client=(frames.PREFACE + b"".join(kept)).hex(),
            settings=(settings + frames.frame(frames.SETTINGS, frames.ACK, 0)).hex(),
            headers=headers[0].hex(),
            messages=[message.hex() for message in messages],
            trailers=headers[-1].hex() if len(headers) > 1 else "",
        )


def record() -> recording.Recording:
    """Plays the session through a proxy and returns its recording."""
    taps: list[_Tap] = []
    with session.running_server() as server:
        host, _, port = server.rpartition(":")

        def handle(client: socket.socket) -> None:
            taps.append(tap := _Tap())
            client.settimeout(None)
            with (
                socket.create_connection((host, int(port))) as upstream,
                ThreadPoolExecutor(2) as pool,
            ):
                pool.submit(tap.pump, "client", client, upstream)
                pool.submit(tap.pump, "server", upstream, client)

        with Listener(handle) as listener:
            received = session.play(listener.address, lambda: time.sleep(_REPORT_SECONDS))
    connections = [tap.connection() for tap in taps]
    schema = recording.schema_of_today()
    return recording.Recording(infeed.__version__, connections, received, schema)


if __name__ == "__main__":
    if infeed.__version__ in recording.versions():
        sys.exit(f"{infeed.__version__} has a recording, and a recording never changes")
    record().save()
