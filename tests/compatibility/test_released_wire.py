"""Released wire formats: today's client and server speak with each recorded release."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from tests.compatibility import recording, replay, session
from tests.harness.listener import Listener

import infeed
from infeed.cursor import Shard

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=recording.versions())
def released(request: pytest.FixtureRequest) -> recording.Recording:
    return recording.load(request.param)


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_client_of_today_receives_what_the_released_client_received(
    released: recording.Recording,
) -> None:
    server = replay.RecordedServer(released)
    with Listener(server.handle) as listener:
        received = as_json(session.play(listener.address))
    expected = released.received
    assert received["batches"] == expected["batches"]
    # A later cursor may state more about its run.
    for cursor, known in zip(received["cursors"], expected["cursors"], strict=True):
        assert known.items() <= cursor.items()
    assert received["refusal"] == expected["refusal"]
    # A later release may know more about a pipeline.
    assert expected["pipeline"].items() <= received["pipeline"].items()
    assert [pipeline["name"] for pipeline in received["pipelines"]] == [repr(session.NAME)]


def test_released_server_reads_what_the_client_of_today_requests(
    released: recording.Recording,
) -> None:
    server = replay.RecordedServer(released)
    with Listener(server.handle) as listener:
        session.play(listener.address)
    opening, *rest = server.requests["StreamBatches"]
    assert opening.open.pipeline == session.NAME
    assert opening.open.fingerprint == "f" * 32
    assert opening.open.seed == 5
    assert opening.open.world_size in (0, 1)
    requests = [item.batch for item in rest if item.HasField("batch")]
    assert [(request.start, request.count) for request in requests] == [(0, 4), (4, 4), (8, 2)]
    names = [item.name for item in server.requests["GetPipeline"]]
    assert names == [session.UNKNOWN, session.NAME]


def test_server_of_today_answers_the_released_client_as_before(
    released: recording.Recording,
) -> None:
    with session.running_server() as address:
        for connection in released.connections:
            now = replay.send_recorded(connection, address)
            then = replay.answer_of(connection)
            assert now.status == (then.status or "0")
            assert bool(now.details) == bool(then.details)
            read = released.message_class(f"{connection.method}Response").FromString
            assert decoded(map(read, now.messages)) == decoded(map(read, then.messages))


def decoded(messages: Any) -> list[str]:
    """Returns messages as the released schema reads them, without those that depend on time."""
    result = []
    for message in messages:
        message.DiscardUnknownFields()
        names = {field.name for field, _ in message.ListFields()}
        if not names & {"heartbeat", "report"}:
            result.append(str(message))
    return result


def test_cursor_of_the_release_is_resumed(released: recording.Recording) -> None:
    cursor = released.received["cursors"][0]
    options = {"epochs": 1, "remainder": "pad", "shard": Shard()}
    with (
        session.running_server() as address,
        infeed.connect(address, session.NAME, state=cursor, **options) as feed,
    ):
        rest = [session.batch_json(batch) for batch in feed]
    assert as_json(rest) == released.received["batches"][1:]


def test_schema_only_grows(released: recording.Recording) -> None:
    buf = Path(sys.executable).with_name("buf")
    if not buf.exists():
        pytest.skip("needs buf, of requirements/dev.txt")
    schema = recording.FOLDER / released.version / "schema.binpb"
    command = [buf, "breaking", "proto", "--against", schema]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_current_version_has_a_recording_with_its_schema() -> None:
    """A changed schema of an unreleased version needs another recording; a released one, a
    version."""
    assert infeed.__version__ in recording.versions(), "python -m tests.compatibility.record"
    schema = recording.load(infeed.__version__).schema
    now = descriptor_pb2.FileDescriptorSet.FromString(recording.schema_of_today())
    assert descriptor_pb2.FileDescriptorSet.FromString(schema) == now
