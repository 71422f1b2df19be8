"""The options of `infeed serve`: one model for the command line, Python and child processes."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from infeed.cli.model_options import with_models
from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.runtime.multiprocess import _command
from infeed_server.runtime.options import Decoder, Readiness, ServeOptions, ServerOptions
from infeed_server.serving.auth import hash_token

OTHERS: dict[str, Any] = {
    "listen": "[::1]:0",
    "http": "off",
    "http_hosts": ["a", "b"],
    "grace": 0.5,
    "readiness": Readiness.ANY,
    "decoder": Decoder.TENSORFLOW,
    "memory_limit": 17,
    "skip_broken": True,
    "processes": 8,
    "one_of": 2,
    "with_parent": True,
    "parent_token": "p",
    "http_tls": True,
    "http_tokens": "h.yaml",
    "tls_cert": "c.pem",
    "tls_key": "k.pem",
    "tls_client_ca": "ca.pem",
    "tokens": "t.yaml",
    "insecure": True,
    "max_streams": 1,
    "peer_streams": 2,
    "max_calls": 3,
    "peer_calls": 4,
    "max_connection_age": 5.5,
    "max_connection_age_grace": 6.0,
}
"""Each option with another value than its default."""


def parse(*arguments: str) -> ServeOptions:
    """Returns the options of a command line."""
    parsed: list[ServeOptions] = []

    @with_models
    def command(options: ServeOptions) -> None:
        parsed.append(options)

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return parsed[0]


@pytest.mark.parametrize("values", [{}, OTHERS], ids=["defaults", "others"])
def test_command_line_has_the_options_and_defaults_of_the_model(values: dict[str, Any]) -> None:
    options = ServeOptions(**values)
    assert parse(*options.to_arguments()) == options
    assert options.model_dump() == {**ServeOptions().model_dump(), **values}


def test_all_options_of_the_model_are_tried() -> None:
    assert OTHERS.keys() == ServeOptions.model_fields.keys()


def test_child_process_gets_all_but_the_parents_control_plane() -> None:
    command = _command("p.yaml", ServerOptions(**OTHERS), Address.parse("[::1]:9"), "token")
    own = parse(*command[command.index("p.yaml") + 1 :]).model_dump()
    changed = {
        "listen": "[::1]:9",
        "http": "127.0.0.1:0",
        "memory_limit": 2,
        "processes": 1,
        "one_of": 8,
        "http_tls": False,
        **dict.fromkeys(("http_hosts", "http_tokens")),
    }
    assert own == {**OTHERS, **changed, "parent_token": hash_token("token")}


@pytest.mark.parametrize(
    ("option", "value"), [("tls_key", "k"), ("tls_client_ca", "c"), ("http_tls", True)]
)
def test_tls_without_a_certificate_is_refused(option: str, value: Any) -> None:
    name = "--" + option.replace("_", "-")
    with pytest.raises(ConfigError, match=f"{name}: needs .*--tls-cert"):
        ServerOptions(**{option: value})


def test_native_decoder_of_another_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="--decoder native: workers of another engine"):
        ServerOptions(engine=lambda _: None, decoder=Decoder.NATIVE)
