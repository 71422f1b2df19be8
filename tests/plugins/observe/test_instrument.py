"""The instrument of a server: who may see samples."""

from __future__ import annotations

import pytest

from infeed_observe.instrument import shows_samples
from infeed_server import ServerOptions


@pytest.mark.parametrize(
    ("options", "has_previews"),
    [
        (ServerOptions(), True),
        (ServerOptions(http="[::1]:0"), True),
        (ServerOptions(tokens="t.yaml"), False),
        (ServerOptions(tls_cert="c.pem", tls_client_ca="ca.pem"), False),
        (ServerOptions(http="0.0.0.0:7471"), False),
        (ServerOptions(http="0.0.0.0:7471", tokens="t.yaml", http_tokens="h.yaml"), True),
        (ServerOptions(http="off", http_tokens="h.yaml"), False),
    ],
)
def test_previews_need_loopback_without_tokens_or_http_tokens(
    options: ServerOptions, has_previews: bool
) -> None:
    assert shows_samples(options) is has_previews
