"""Instruments of other packages, and servers without one."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.packages import write_package

import infeed
from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError, InfeedError
from infeed_server import Server, ServerOptions
from infeed_server.pipeline.load import parse
from infeed_server.runtime import instruments
from infeed_server.runtime.instruments import (
    ProcessFacts,
    open_parent_instrument,
)


def facts(**options: Any) -> ProcessFacts:
    return ProcessFacts(ServerOptions(**options), "token", list)


def test_a_server_without_instruments_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(instruments, "_DOOR", Door("infeed.none", "instrument"))
    pipeline = parse({"source": {"arrays": {"x": np.arange(8)}}, "batch": {"size": 4}})
    with Server({"n": pipeline}, ServerOptions("127.0.0.1:0")) as server:
        assert server.http_address is None
        assert server.health.overall.ready
        with infeed.connect(str(server.address), "n", epochs=1) as feed:
            assert sorted(x for batch in feed for x in batch["x"].tolist()) == list(range(8))
    assert "--http 127.0.0.1:7471: no installed package serves the dashb" in caplog.text


def test_an_address_without_an_instrument_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(instruments, "_DOOR", Door("infeed.none", "instrument"))
    with pytest.raises(ConfigError, match=r"^--http \[::1\]:0: no .*; install one, or "):
        open_parent_instrument(facts(http="[::1]:0"))
    caplog.set_level(logging.DEBUG)
    for unseen in ({"http": "off"}, {"http": None}, {"http": "[::1]:0", "parent_token": "t"}):
        assert open_parent_instrument(facts(**unseen)).address is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        (
            "other",
            "X = 1",
            "the instrument 'other' of infeed-eye 1.0 has an unknown name; known:",
        ),
        ("processes", "X = 1", "the instrument 'processes', eye:X of infeed-eye 1.0, should be"),
        ("processes", "def X(_): return None", "eye:X of infeed-eye 1.0, should be a subclass"),
        (
            "processes",
            (
                "from infeed_server.runtime.instruments import ParentInstrument as P\n"
                "class X(P):\n"
                "    def __init__(self, _): raise ValueError('no eye')\n"
            ),
            "the instrument 'processes' of infeed-eye 1.0 raised ValueError:",
        ),
    ],
)
def test_a_package_at_fault_is_named(
    name: str, code: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "infeed-eye", f"[infeed.eyes]\n{name} = eye:X\n", eye=code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "eye", raising=False)
    monkeypatch.setattr(instruments, "_DOOR", Door("infeed.eyes", "instrument"))
    with pytest.raises(InfeedError) as caught:
        open_parent_instrument(facts())
    assert text in str(caught.value)
