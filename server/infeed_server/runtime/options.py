"""Where and how a server listens."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_LISTEN = "127.0.0.1:8470"
DEFAULT_HTTP = "127.0.0.1:8471"


@dataclass(frozen=True)
class ServerOptions:
    """Where the server listens. `http` None leaves the control plane out.

    `share_port` lets other processes listen on the same port; the kernel shares connections out.
    """

    listen: str = DEFAULT_LISTEN
    http: str | None = DEFAULT_HTTP
    insecure: bool = False
    share_port: bool = False
