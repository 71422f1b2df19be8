"""Control plane of a server or of several processes, reached as the options say."""

from __future__ import annotations

from functools import partial

from infeed_server.control.access import Authorize
from infeed_server.control.app import ControlState
from infeed_server.control.http_server import ControlServer, open_control_server
from infeed_server.runtime.certificate import tls_files
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.auth import TokenAuthenticator, require_token


def open_control_plane(state: ControlState, options: ServerOptions) -> ControlServer | None:
    """Binds the address of the control plane; None if there is none. Raises `ConfigError`."""
    authorize: Authorize | None = None
    if options.parent_token:
        authorize = partial(require_token, options.parent_token)
    if options.http_tokens:
        tokens = TokenAuthenticator(options.http_tokens, option="--http-tokens")
        authorize = tokens.require_access_to_all
    files = tls_files(options) if options.http_tls else None
    return open_control_server(
        state,
        options.http,
        insecure=options.insecure,
        host_names=options.http_hosts,
        tls=files.http_context() if files else None,
        authorize=authorize,
    )
