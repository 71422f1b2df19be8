"""Undocumented names of h2: each test fails if h2 drops one, or if it behaves in another way."""

from __future__ import annotations

import logging

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
from h2.settings import SettingCodes

from infeed.http2.h2_internals import hide_headers_from_log, set_local_settings

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/s/m"), (":authority", "s")]
RESPONSE = [(":status", "200")]
TRAILERS = [("grpc-status", "0")]


def new_connection(client: bool, **values: int) -> h2.connection.H2Connection:
    """Returns a connection with local settings, by their names in lower case."""
    config = h2.config.H2Configuration(client_side=client)
    connection = h2.connection.H2Connection(config)
    set_local_settings(
        connection, {SettingCodes[name.upper()]: value for name, value in values.items()}
    )
    return connection


def connect(**values: int) -> tuple[h2.connection.H2Connection, h2.connection.H2Connection]:
    """Returns a client with these settings and a server that has its request.

    The client has received nothing yet, so its settings are not acknowledged.
    """
    client = new_connection(client=True, **values)
    client.initiate_connection()
    client.send_headers(1, REQUEST)
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.receive_data(client.data_to_send())
    server.data_to_send()  # the acknowledgement
    return client, server


def test_local_settings_are_sent_in_one_frame_after_the_preface() -> None:
    client = new_connection(client=True, enable_push=0, initial_window_size=70_000)
    client.initiate_connection()
    sent = client.data_to_send()
    assert sent.startswith(PREFACE)
    frame = sent[len(PREFACE) :]
    assert int.from_bytes(frame[:3], "big") == len(frame) - 9
    assert frame[3:9] == b"\4\0\0\0\0\0"  # SETTINGS
    _, server = connect(enable_push=0, initial_window_size=70_000, max_frame_size=1 << 20)
    assert server.remote_settings.enable_push == 0
    assert server.remote_settings.initial_window_size == 70_000
    assert server.max_outbound_frame_size == 1 << 20


def test_window_of_a_new_stream_is_that_of_the_settings() -> None:
    client, server = connect(initial_window_size=1000)
    assert client.remote_flow_control_window(1) == 1000
    assert server.local_flow_control_window(1) == 1000


def test_large_frame_is_accepted_before_the_settings_are_acknowledged() -> None:
    client, server = connect(max_frame_size=1 << 20)
    server.send_headers(1, [*RESPONSE, ("x", "\x7f" * 20_000)])
    frame = server.data_to_send()
    assert int.from_bytes(frame[:3], "big") == len(frame) - 9 > 1 << 14
    (event,) = client.receive_data(frame)
    assert isinstance(event, h2.events.ResponseReceived)


def test_frame_above_the_size_of_the_settings_is_refused() -> None:
    client, _ = connect(max_frame_size=1 << 15)
    size = (1 << 15) + 1
    with pytest.raises(h2.exceptions.FrameTooLargeError):
        client.receive_data(size.to_bytes(3, "big") + b"\1\4\0\0\0\1" + bytes(size))


def test_headers_above_the_size_of_the_settings_are_refused() -> None:
    client, server = connect(max_header_list_size=1000)
    server.send_headers(1, [*RESPONSE, ("x", "y" * 1000)])
    with pytest.raises(h2.exceptions.DenialOfServiceError):
        client.receive_data(server.data_to_send())


def test_streams_above_the_number_of_the_settings_are_refused() -> None:
    server = new_connection(client=False, max_concurrent_streams=2)
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    for stream_id in (1, 3, 5):
        client.send_headers(stream_id, REQUEST)
    with pytest.raises(h2.exceptions.TooManyStreamsError):
        server.receive_data(client.data_to_send())


def test_headers_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    hide_headers_from_log()
    caplog.set_level(logging.DEBUG)
    client, server = connect()
    evicting = [(f"x-{number}", "y" * 1000) for number in range(5)]  # from the header table
    server.send_headers(1, [*RESPONSE, ("x-token", "s3cr3t"), *evicting])
    client.receive_data(server.data_to_send())
    assert "s3cr3t" not in caplog.text


def test_trailers_are_accepted_after_data_that_h2_has_not_seen() -> None:
    client, server = connect()
    server.send_headers(1, RESPONSE)
    (response,) = client.receive_data(server.data_to_send())
    assert isinstance(response, h2.events.ResponseReceived)
    server.send_data(1, b"data")
    server.data_to_send()  # which the client receives without h2
    server.send_headers(1, TRAILERS, end_stream=True)
    trailers, end = client.receive_data(server.data_to_send())
    assert isinstance(trailers, h2.events.TrailersReceived)
    assert isinstance(end, h2.events.StreamEnded)


def test_request_continues_after_a_response_whose_end_h2_has_not_seen() -> None:
    client, server = connect()
    server.send_headers(1, RESPONSE)
    client.receive_data(server.data_to_send())
    server.send_data(1, b"data", end_stream=True)
    server.data_to_send()  # which the client receives without h2
    client.send_data(1, b"more", end_stream=True)
    events = server.receive_data(client.data_to_send())
    assert isinstance(events[0], h2.events.DataReceived)
