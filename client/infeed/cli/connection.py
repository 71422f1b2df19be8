"""The options of TLS and authentication, the same for every command that connects."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

import infeed
from infeed.cli.files import problem_of
from infeed.shared.errors import ConfigError

File = Path | None

SECURITY = "TLS and token"
"""The title of these options in the help of a command."""


def _option(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel=SECURITY, **options)


def _file(variable: str, help_text: str) -> Any:
    return _option(envvar=variable, metavar="FILE", help=help_text)


def connection(
    *,
    tls: Annotated[
        bool, _option("--tls", help="Use TLS, and trust the system's authorities.")
    ] = False,
    tls_ca: Annotated[
        File, _file("INFEED_TLS_CA", "Use TLS, and trust these authorities (PEM).")
    ] = None,
    tls_cert: Annotated[File, _file("INFEED_TLS_CERT", "The client's certificate (PEM).")] = None,
    tls_key: Annotated[
        File, _file("INFEED_TLS_KEY", "Its private key. Default: in the same file.")
    ] = None,
    tls_server_name: Annotated[
        str | None,
        _option(metavar="NAME", help="The name in the server's certificate. Default: the host."),
    ] = None,
    token_file: Annotated[File, _file("INFEED_TOKEN_FILE", "A file that holds the token.")] = None,
) -> dict[str, Any]:
    """Returns the arguments of `infeed.connect` for these options."""
    arguments: dict[str, Any] = {}
    if tls or tls_ca or tls_cert or tls_key or tls_server_name:
        arguments["tls"] = infeed.TLS(tls_ca, tls_cert, tls_key, tls_server_name)
    if token_file is not None:
        arguments["token"] = _token(token_file)
    return arguments


Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", help="Seconds to wait for a server that is starting.")
]


def with_connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds these options to a command, which gets their result as `connection`."""
    added = _parameters(connection)
    kept = [each for name, each in _parameters(command).items() if name != "connection"]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        options = {name: values.pop(name) for name in added}
        command(**values, connection=connection(**options))

    # Typer reads the parameters from both.
    parameters = [*kept, *added.values()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters with evaluated annotations; Typer would look text up elsewhere."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    return {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in parameters.items()
    }


def _token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file}: {problem_of(error)}", file=file) from None
