"""Whether the address that others are told leads here: tried before anybody is told.

A dispatcher never forgets an address, and gives it work for as long as its journal lives.
"""

from __future__ import annotations

import secrets
import socket
import time
from contextlib import closing, suppress

from infeed_server.config.address import Address

_SECONDS = 5.0


def elsewhere(listen: Address, advertised: Address) -> str | None:
    """Why who connects to `advertised` does not come to who listens on `listen`; None if it does.

    Nobody may listen there yet. Port 0 of `advertised` is the one that is listened on.
    """
    with closing(_listener(listen)) as listener:
        listener.settimeout(_SECONDS)
        port = advertised.port or listener.getsockname()[1]
        try:
            caller = socket.create_connection((advertised.host, port), _SECONDS)
        except (OSError, UnicodeError) as error:  # the latter for a host that no name can be
            return str(getattr(error, "strerror", None) or error)
        with caller:
            word = secrets.token_bytes(16)
            # Somebody else who answers there may well close the connection.
            with suppress(OSError):
                caller.sendall(word)
            return None if _hears(listener, word) else "somebody else answers there"


def _listener(listen: Address) -> socket.socket:
    """As TensorFlow will: on all addresses, if not on loopback alone."""
    if listen.is_loopback:
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        return socket.create_server((listen.host, listen.port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", listen.port), family=socket.AF_INET6, dualstack_ipv6=True
        )
    return socket.create_server(("0.0.0.0", listen.port))  # noqa: S104


def _hears(listener: socket.socket, word: bytes) -> bool:
    """Whether one who connects says the word; trainers that look for a worker may come before."""
    deadline = time.monotonic() + _SECONDS
    with suppress(OSError):
        while time.monotonic() < deadline:
            heard, _ = listener.accept()
            with heard, suppress(OSError):
                heard.settimeout(_SECONDS)
                if heard.recv(len(word), socket.MSG_WAITALL) == word:
                    return True
    return False
