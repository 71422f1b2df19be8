"""Undocumented names of h2 that the client relies on, each behind one function.

docs/transport.md has the tested versions of h2, and all that the client assumes of it.
"""

from __future__ import annotations

import logging

from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings


def set_local_settings(connection: H2Connection, values: dict[SettingCodes, int]) -> None:
    """Sets what `initiate_connection` sends, and applies it from the first frame.

    h2's public `update_settings` sends a frame of its own, which a client must not send before the
    preface, and applies the values only when the peer has acknowledged them.

    Relies on `local_settings` for what is sent, for the windows of new streams and for the limit of
    streams, on `max_inbound_frame_size`, and on `decoder.max_header_list_size`.
    """
    settings = Settings(client=connection.config.client_side, initial_values=values)
    connection.local_settings = settings
    connection.max_inbound_frame_size = settings.max_frame_size
    if settings.max_header_list_size is not None:
        connection.decoder.max_header_list_size = settings.max_header_list_size


def hide_headers_from_log() -> None:
    """Keeps headers, which contain tokens, out of the log.

    hpack logs each header at DEBUG, and neither it nor h2 has an option against it. Relies on the
    name of hpack's logger.
    """
    logging.getLogger("hpack").setLevel(logging.INFO)
