"""A recording: the bytes of each connection of one session, and the schema that they had.

recordings/VERSION/session.json    connections (hex) and what the trainer received
recordings/VERSION/schema.binpb    descriptors of the .proto files of that release
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.compatibility import frames

from infeed.v1 import feed_service_pb2, spec_pb2, stream_pb2

FOLDER = Path(__file__).with_name("recordings")
SERVICE = "/infeed.v1.FeedService/"


@dataclass(frozen=True)
class Connection:
    """One call on one connection; `client` and the rest are bytes in hexadecimal digits."""

    method: str
    client: str
    """The preface and frames of the client, except resets, PING and GOAWAY."""
    settings: str
    """The server's SETTINGS frame, and its acknowledgement of the client's."""
    headers: str
    """The server's first HEADERS frame."""
    messages: list[str]
    """The server's messages in gRPC's framing, heartbeats left out."""
    trailers: str
    """The server's last HEADERS frame; empty if the client ended the call."""


@dataclass(frozen=True)
class Recording:
    """The session of one release."""

    version: str
    connections: list[Connection]
    received: dict[str, Any]
    schema: bytes

    @cached_property
    def _pool(self) -> descriptor_pool.DescriptorPool:
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(self.schema).file:
            pool.Add(file)
        return pool

    def message_class(self, name: str) -> Any:
        """Returns the class of a message as the release had it."""
        return message_factory.GetMessageClass(
            self._pool.FindMessageTypeByName(f"infeed.v1.{name}")
        )

    def save(self) -> None:
        """Writes the files of this version."""
        folder = FOLDER / self.version
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "version": self.version,
            "received": self.received,
            "connections": [asdict(connection) for connection in self.connections],
        }
        (folder / "session.json").write_text(json.dumps(content, indent=1) + "\n")
        (folder / "schema.binpb").write_bytes(self.schema)


def load(version: str) -> Recording:
    """Returns the recording of a version."""
    folder = FOLDER / version
    content = json.loads((folder / "session.json").read_text())
    connections = [Connection(**connection) for connection in content["connections"]]
    schema = (folder / "schema.binpb").read_bytes()
    return Recording(content["version"], connections, content["received"], schema)


def versions() -> list[str]:
    """Returns the versions that have a recording, the oldest first."""
    names = [path.name for path in FOLDER.iterdir() if path.is_dir()]
    return sorted(names, key=lambda name: tuple(map(int, name.split("."))))


def schema_of_today() -> bytes:
    """Returns the descriptors of the generated stubs."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (spec_pb2, stream_pb2, feed_service_pb2):
        file = files.file.add()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            for field in message.field:  # stubs leave the names in JSON out; buf compares them
                first, *rest = field.name.split("_")
                field.json_name = first + "".join(map(str.capitalize, rest))
    return files.SerializeToString(deterministic=True)


def split_frames(data: bytes) -> list[tuple[int, int, bytes, bytes]]:
    """Returns kind, flags, body and the whole of each complete frame."""
    result, start = [], 0
    while len(data) - start >= 9:
        end = start + 9 + int.from_bytes(data[start : start + 3], "big")
        if end > len(data):
            break
        result.append((data[start + 3], data[start + 4], data[start + 9 : end], data[start:end]))
        start = end
    return result


def split_messages(data: bytes) -> list[bytes]:
    """Returns the complete messages of gRPC's framing, without their prefix."""
    result, start = [], 0
    while len(data) - start >= 5:
        end = start + 5 + int.from_bytes(data[start + 1 : start + 5], "big")
        if end > len(data):
            break
        result.append(data[start + 5 : end])
        start = end
    return result


def grpc_data(data: bytes) -> bytes:
    """Returns the contents of the DATA frames."""
    return b"".join(body for kind, _, body, _ in split_frames(data) if kind == frames.DATA)
