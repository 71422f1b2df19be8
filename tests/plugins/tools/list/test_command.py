"""`infeed list` against servers of fake pipelines."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.harness.ports import ReservedPort
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed.shared.errors import ServerUnavailableError
from infeed.shared.spec import Cast, Guarantee
from infeed.testing import FakeTransport


def fake(name: str = "photos", **changes: Any) -> FakeTransport:
    rows = {"image": np.zeros((50, 3, 4), np.uint8), "label": np.arange(50)}
    transport = FakeTransport(
        rows, name=name, batch_size=4, seed=3, finish_transforms=[Cast("image", "float32")]
    )
    given = {"source_kind": "images", "shuffle_mode": "global", **changes}
    transport.spec = replace(transport.spec, **given)
    return transport


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["list", *arguments])


def test_table_has_what_a_server_serves(serve: Any) -> None:
    own_order = Guarantee("deterministic", "exactly_once", "replay")
    numbers = fake(
        "numbers",
        source_kind="dataset",
        shuffle_mode="own",
        sample_count=None,
        guarantee=own_order,
        engine="tf_data_service",
    )
    result = run(f"{serve(fake(), numbers).address},{serve(fake(), numbers).address}")
    assert result.exit_code == 0, result.output
    assert result.output.count("photos") == 1
    assert "all 2 servers serve the same" in result.output
    numbers_row, photos_row = result.output.split("photos", 1)
    for text in (
        *("images", "indexed", "50", "4", "global", "seed 3"),
        *("image: float32[3, 4], sent as uint8", "label: int64[]"),
        *("deterministic order", "exactly once delivery", "constant time resume"),
        fake().spec.fingerprint[:12],
    ):
        assert text in photos_row
    for text in ("dataset", "sequential", "tf-data-service", "unknown", "own", "replay resume"):
        assert text in numbers_row


def test_classes_and_broken_pipelines_are_listed(serve: Any) -> None:
    names = ("cat", "dog\x1b", "owl", "pig")
    server = serve(fake(classes={"label": names}))
    server.broken = {"scans": "no file"}
    result = run(server.address)
    assert result.exit_code == 0, result.output
    assert "  4 classes: cat, dog\\x1b, owl, ..." in result.output
    assert f"broken: scans at {server.address}: no file" in result.output
    (listed,) = json.loads(run(server.address, "--json").stdout)["servers"]
    assert listed["broken"] == {"scans": "no file"}
    assert listed["pipelines"][0]["classes"] == {"label": [*names]}
    assert run(f"{server.address},{serve(fake()).address}").output.count("classes differs: ") == 1


def test_json_has_the_whole_spec(serve: Any) -> None:
    server = serve(fake())
    result = run(server.address, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    (listed,) = document["servers"]
    (pipeline,) = listed["pipelines"]
    assert (document["target"], listed["server"]) == (server.address, server.address)
    assert document["differences"] == []
    assert pipeline["fields"] == [
        {"name": "image", "data_type": "float32", "shape": [3, 4], "sent_as": "uint8"},
        {"name": "label", "data_type": "int64", "shape": [], "sent_as": "int64"},
    ]
    assert pipeline["fingerprint"] == fake().spec.fingerprint
    names = ("name", "source", "access", "samples", "batch_size", "shuffle", "seed", "on_error")
    assert [pipeline[name] for name in names] == [
        *("photos", "images", "indexed", 50, 4, "global", 3, "raise")
    ]


def test_names_cannot_control_the_terminal(serve: Any) -> None:
    result = run(serve(fake("ph\x1b[2J[/b]\nx\u202e")).address)
    assert result.exit_code == 0, result.output
    assert "ph\\x1b[2J[/b]\\nx\\u202e" in result.output


def test_differences_name_values_and_servers(serve: Any) -> None:
    first = serve(fake(), fake("only_here"))
    second = serve(fake(fingerprint="0" * 32, batch_size=8))
    result = run(f"{first.address},{second.address}")
    assert result.exit_code == 1
    for line in (
        f"photos: batch size differs: 4 at {first.address}; 8 at {second.address}",
        f"photos: fingerprint differs: {fake().spec.fingerprint} at {first.address}; {'0' * 32} at",
        f"only_here: served by {first.address}, but not by {second.address}",
    ):
        assert f"differs: {line}" in result.output
    rows = [line for line in result.output.splitlines() if line.split()[:2] == ["photos", "images"]]
    assert len(rows) == 2


def test_server_that_does_not_answer_is_a_difference(serve: Any) -> None:
    server = serve(fake())
    with ReservedPort() as silent:
        result = run(f"{server.address},{silent.address}", "--timeout", "0.3")
    assert result.exit_code == 1
    assert f"differs: {silent.address}: no infeed server answered" in result.output
    assert "images" in result.output


def test_no_server_is_an_error() -> None:
    with ReservedPort() as silent:
        result = run(silent.address, "--timeout", "0.3")
    assert isinstance(result.exception, ServerUnavailableError)


def test_ctrl_c_does_not_wait_for_an_answer() -> None:
    with ReservedPort() as silent:
        command = [sys.executable, "-m", "infeed", "list", silent.address, "--timeout", "300"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert "waiting for " in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 130
        process.stderr.close()


@pytest.mark.parametrize("arguments", [[], ["127.0.0.1:1", "--timeout", "never"]])
def test_wrong_usage_has_status_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2
