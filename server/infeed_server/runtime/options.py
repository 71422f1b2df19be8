"""Where and how a server listens, and whom it lets in."""

from __future__ import annotations

from dataclasses import dataclass

from infeed_server.rpc.server import MAX_PEER_STREAMS
from infeed_server.runtime.certificate import TLSFiles

DEFAULT_LISTEN = "127.0.0.1:8470"
DEFAULT_HTTP = "127.0.0.1:8471"

GRACE_SECONDS = 20.0
"""What open streams get to end by themselves when the server is told to stop: with what else a
stop takes, less than the 30 seconds that orchestrators usually wait."""


@dataclass(frozen=True)
class ServerOptions:
    """Where the server listens. `http` None leaves the control plane out."""

    listen: str = DEFAULT_LISTEN
    http: str | None = DEFAULT_HTTP
    insecure: bool = False
    """Whether other machines may reach what is not encrypted."""
    share_port: bool = False
    """Whether other processes listen on the same port; the kernel shares connections out."""
    tls: TLSFiles | None = None
    """None: in the clear."""
    tokens: str | None = None
    """A file of bearer tokens; None: anybody may ask for everything."""
    grace: float = GRACE_SECONDS
    peer_streams: int = MAX_PEER_STREAMS
    """Streams that one host may have open."""
    memory_limit: int | None = None
    """Bytes that the batches of all streams may take before they are sent; None: a quarter of what
    this process may use."""
