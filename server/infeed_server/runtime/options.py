"""The options of a server: addresses, security and limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.control.health import ReadinessPolicy
from infeed_server.control.http_server import ControlAccess
from infeed_server.control.token_check import Authorize
from infeed_server.rpc.limits import Limits
from infeed_server.rpc.server import MAX_CONNECTION_AGE_GRACE_SECONDS
from infeed_server.runtime.certificate import TLSFiles
from infeed_server.runtime.engines import OpenEngine
from infeed_server.serving.auth import TokenAuthenticator, require_token

DEFAULT_LISTEN = "127.0.0.1:7470"
DEFAULT_HTTP = "127.0.0.1:7471"

DEFAULT_GRACE_SECONDS = 20.0
"""Time that open streams have to end by themselves at a shutdown. With the other steps of a
shutdown, less than the 30 seconds that orchestrators usually wait."""


@dataclass(frozen=True)
class ServerOptions:
    """The options of a server, as `infeed serve` takes them."""

    listen: str = DEFAULT_LISTEN
    http: str | None = DEFAULT_HTTP
    """Address of the control plane; None or `off`: there is none."""
    insecure: bool = False
    """Whether other machines may reach what is not encrypted."""
    share_port: bool = False
    """Whether other processes listen on the same port; the kernel distributes connections."""
    tls: TLSFiles | None = None
    """None: connections are not encrypted."""
    tokens: str | None = None
    """A file of bearer tokens; None: all clients may read all pipelines."""
    grace: float = DEFAULT_GRACE_SECONDS
    max_streams: int = Limits.streams
    peer_streams: int = Limits.peer_streams
    """Of each client: a token, else a client certificate, else a host."""
    max_calls: int = Limits.calls
    """Calls other than streams of batches."""
    peer_calls: int = Limits.peer_calls
    max_connection_age: float | None = None
    """Seconds after which clients open new connections, which a balancer can distribute again."""
    max_connection_age_grace: float = MAX_CONNECTION_AGE_GRACE_SECONDS
    """Seconds that the streams of an old connection have to end."""
    http_hosts: tuple[str, ...] = ()
    """Names, besides this machine's, under which the control plane is requested."""
    http_peers: tuple[str, ...] = ()
    """Control planes of other servers, which the dashboard shows beside this one."""
    http_tls: bool = False
    """Whether the control plane is encrypted, with the certificate of `tls`."""
    http_tokens: str | None = None
    """A file of bearer tokens for the control plane; None: it needs none."""
    parent_token: str | None = None
    """SHA-256 of the only token that the control plane accepts: of the parent of this process."""
    readiness: ReadinessPolicy = "all"
    """How many pipelines must be ready for the server to be ready."""
    unready_on_bad_data: bool = False
    """Whether a pipeline becomes unready, until a restart, when data changed or is damaged."""
    memory_limit: int | None = None
    """Maximum bytes of all unsent batches; None: a quarter of what this process may use."""
    engine: OpenEngine | None = None
    """Opens the engine of another package; None: the local engine."""

    def listen_address(self) -> Address:
        """Returns `listen`, parsed. Raises `ConfigError` for a malformed or unsafe address."""
        return Address.parse_safe(
            "--listen", self.listen, encrypted=self.tls is not None, insecure=self.insecure
        )

    @property
    def has_previews(self) -> bool:
        """Whether the control plane may show samples: to those alone that may read all of them.

        Without tokens of its own, it must be of this machine, and gRPC without authentication too.
        """
        if self.http in (None, "off") or self.parent_token:
            return False
        if self.http_tokens:
            return True
        if self.tokens or (self.tls and self.tls.client_ca):
            return False
        return Address.parse(self.http or "", "--http").is_loopback

    def control_access(self) -> ControlAccess:
        """Returns how the control plane is reached. Raises `ConfigError`."""
        if self.http_tls and self.tls is None:
            raise ConfigError("--http-tls: TLS needs the server's certificate too: --tls-cert")
        authorize: Authorize | None = None
        if self.parent_token:
            authorize = partial(require_token, self.parent_token)
        if self.http_tokens:
            tokens = TokenAuthenticator(self.http_tokens, option="--http-tokens")
            authorize = tokens.require_access_to_all
        return ControlAccess(
            self.http,
            self.insecure,
            self.http_hosts,
            tls=self.tls.http_context() if self.tls and self.http_tls else None,
            authorize=authorize,
        )

    def limits(self) -> Limits:
        return Limits(self.max_streams, self.peer_streams, self.max_calls, self.peer_calls)
