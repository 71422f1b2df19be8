"""The instrument of a server: where samples are shown, and a server without one."""

from __future__ import annotations

import numpy as np
import pytest

import infeed
from infeed.shared.doors import Door
from infeed_observe.instrument import shows_samples
from infeed_server import Server, ServerOptions
from infeed_server.pipeline.load import parse
from infeed_server.runtime import instruments


def test_a_server_without_instruments_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "_DOOR", Door("infeed.none", "instrument"))
    pipeline = parse({"source": {"arrays": {"x": np.arange(8)}}, "batch": {"size": 4}})
    with Server({"n": pipeline}, ServerOptions("127.0.0.1:0", "127.0.0.1:0")) as server:
        assert server.http_address is None
        assert server.health.overall.ready
        with infeed.connect(str(server.address), "n", epochs=1) as feed:
            assert sorted(x for batch in feed for x in batch["x"].tolist()) == list(range(8))


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
