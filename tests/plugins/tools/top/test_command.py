"""`infeed top` against fake control planes."""

from __future__ import annotations

import copy
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from rich.console import Console
from tests.harness.ports import ReservedPort
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed.rpc.channel import GrpcTransport
from infeed.shared.errors import ConfigError, InfeedError, ProtocolError, ServerUnavailableError
from infeed_tools.top.command import watch
from infeed_tools.top.control_plane import ControlPlane

VERDICT: dict[str, Any] = {
    "level": "highly input-bound",
    "wait_share": 0.5,
    "rank": 1,
    "world_size": 2,
    "cause": None,
    "text": "highly input-bound: rank 1 of 2 waited 50.0 % of the time",
}

TRAINER = {
    "rank": 1,
    "peer": "10.0.0.1:50000",
    "sent_position": 96,
    "report_age_seconds": 0.5,
    "wait_share": 0.5,
    "step_seconds": 0.25,
    "report": {
        "seconds": 10.0,
        "steps": 20,
        "starved_steps": 5,
        "ready_batches": 3,
        "total_steps": 1234,
        "position": 14808,
    },
}

STATUS: dict[str, Any] = {
    "server": {
        "version": "1.2.3",
        "ready": True,
        "reason": "",
        "uptime_seconds": 3725.0,
        "cores": 4,
        "cpu_share": 0.25,
        "memory_bytes": 1_200_000_000,
        "peak_memory_bytes": 1_500_000_000,
    },
    "verdict": VERDICT,
    "broken": {"scans": "no file"},
    "pipelines": [
        {
            "name": "photos [bold]\x1b[2J",
            "ready": True,
            "reason": "",
            "batch_size": 4,
            "report": {
                "seconds": 10.0,
                "batches": 20,
                "bytes": 20_000,
                "no_request_seconds": 1.0,
                "no_budget_seconds": 2.0,
                "source_seconds": 0.0,
                "transform_seconds": 7.0,
                "shared_samples": 30,
                "computed_samples": 10,
            },
            "totals": {"streams": 2.0, "bad_samples": 9.0},
            "queues": {"queued_requests": 5, "unsent_bytes": 7000},
            "jobs": [
                {
                    "id": "photos-3-4x2-0",
                    "world_size": 2,
                    "verdict": VERDICT,
                    "trainers": [
                        TRAINER,
                        {
                            **TRAINER,
                            "rank": 0,
                            "report": None,
                            "report_age_seconds": None,
                            "wait_share": None,
                            "step_seconds": None,
                        },
                    ],
                }
            ],
        }
    ],
}

Serve = Callable[[dict[str, tuple[int, Any]]], str]


@pytest.fixture
def serve_http() -> Iterator[Serve]:
    """Returns a function that serves JSON or text by path and returns the address."""
    with ExitStack() as stack:

        def serve(answers: dict[str, tuple[int, Any]]) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    code, body = answers.get(self.path, (404, {"error": f"no {self.path}"}))
                    text = body if isinstance(body, str) else json.dumps(body)
                    self.send_response(code)
                    self.end_headers()
                    self.wfile.write(text.encode())

                def log_message(self, *_: Any) -> None:
                    pass

            server = stack.enter_context(HTTPServer(("127.0.0.1", 0), Handler))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"127.0.0.1:{server.server_port}"

        yield serve


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["top", *arguments])


def test_tables_have_verdict_pipelines_and_trainers(serve_http: Serve) -> None:
    address = serve_http({"/api/v1/status": (200, STATUS)})
    for target in (address, f"http://{address}", f"http://{address}/"):
        result = run(target, "--once")
        assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert f"http://{address}  ready  infeed 1.2.3, up 1 h 2 min, 25 % of 4 processors" in lines[0]
    assert VERDICT["text"] in lines
    assert "scans: not served: no file" in lines
    assert run(address).output == result.output  # outside a terminal
    assert json.loads(run(address, "--json").output) == STATUS
    # Markup and control characters in a name are shown as text.
    pipeline = next(line for line in lines if "photos [bold]\\x1b[2J  " in line)
    assert pipeline.split()[2:] == [
        *("ready", "8", "2.0", "kB/s", "2", "5", "7.0", "kB", "9"),
        *("10", "%", "20", "%", "0", "%", "70", "%", "75", "%", "-"),
    ]
    assert any("job photos-3-4x2-0: 2 of 2 ranks connected; highly input-bound" in x for x in lines)
    ranks = [line.split() for line in lines if "10.0.0.1:50000" in line]
    assert ranks[0][:-1] == [
        *("1", "50.0", "%", "250", "ms", "2", "75", "%", "3", "14808", "1234", "0", "s", "ago")
    ]
    assert ranks[1][:-1] == [*("0", "-", "-", "-", "-", "-", "96", "-", "none", "yet")]


@pytest.mark.parametrize(
    "target", ["127.0.0.1", "http://:7471", "ftp://a:1", "http://a:1/path", "http://a:99999"]
)
def test_a_target_that_is_no_address_is_an_error(target: str) -> None:
    with pytest.raises(ConfigError, match=r"not a URL with only a host.*http://127.0.0.1:7471"):
        ControlPlane.parse(target)


def error(address: str) -> str:
    """Returns the error for a control plane that cannot be shown."""
    result = run(address, "--once")
    assert result.exit_code == 1
    assert isinstance(result.exception, InfeedError)
    return str(result.exception)


def test_a_server_that_does_not_run_is_an_error() -> None:
    with ReservedPort() as port:
        message = error(f"127.0.0.1:{port.number}")
    assert "connection refused; is infeed serve running" in message


@pytest.mark.parametrize(
    ("reported", "target", "url"),
    [
        ("http://127.0.0.1:9", "127.0.0.1:7470", "http://127.0.0.1:9"),
        ("http://0.0.0.0:9", "host-a:7470", "http://host-a:9"),
        ("https://[::]:9", "[fe80::1]:7470", "https://[fe80::1]:9"),
        ("http://0.0.0.0:9", "unix:/run/infeed.sock", "http://localhost:9"),
    ],
)
def test_the_address_for_trainers_leads_to_the_control_plane(
    monkeypatch: pytest.MonkeyPatch, reported: str, target: str, url: str
) -> None:
    monkeypatch.setattr(GrpcTransport, "control_plane", lambda *_: reported)
    control = ControlPlane.of_server(target, None, None)
    assert control is not None
    assert control.url == url


def test_another_server_is_an_error(serve_http: Serve) -> None:
    for answers in ({}, {"/": (200, "hello")}, {"/api/v1/status": (200, {"a": 1})}):
        assert "not an infeed control plane" in error(serve_http(answers))
    answers = {"/api/v1/status": (421, {"error": "unknown host name"})}
    assert "unknown host name" in error(serve_http(answers))


def test_a_status_of_another_structure_is_an_error(serve_http: Serve) -> None:
    other = copy.deepcopy(STATUS)
    del other["pipelines"][0]["queues"]
    message = error(serve_http({"/api/v1/status": (200, other)}))
    assert "cannot read its /api/v1/status" in message
    assert "'queues'" in message


class FakeControl(ControlPlane):
    """A control plane with given statuses."""

    answers: Iterator[dict[str, Any] | InfeedError]

    def status(self) -> dict[str, Any]:
        answer = next(self.answers)
        if isinstance(answer, InfeedError):
            raise answer
        return answer


def test_watching_goes_on_while_the_server_does_not_answer() -> None:
    changed = copy.deepcopy(STATUS)
    changed["verdict"]["text"] = "highly input-bound: changed"
    lost = ServerUnavailableError("connection refused")
    control = FakeControl("a", 1)
    object.__setattr__(control, "answers", iter([lost, ProtocolError("no"), lost, changed]))
    sleeps = iter(range(4))

    def sleep(_: float) -> None:
        if next(sleeps, None) is None:
            raise KeyboardInterrupt

    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=200, height=40)
    shown = copy.deepcopy(STATUS)
    with pytest.raises(KeyboardInterrupt):
        watch(console, control, shown, 1.0, sleep)
    assert "showing the last figures: connection refused" in output.getvalue()
    assert shown == changed
    # The earlier screen is back.
    assert "\x1b[?1049l" in output.getvalue()[-20:]
