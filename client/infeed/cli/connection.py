"""The options of TLS and authentication, the same for every command that connects."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from infeed.errors import ConfigError
from infeed.http2.tls_config import TLS

File = Path | None


def connection(
    *,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use TLS, and trust the system's authorities.")
    ] = False,
    tls_ca: Annotated[
        File,
        typer.Option(envvar="INFEED_TLS_CA", help="Use TLS, and trust these authorities (PEM)."),
    ] = None,
    tls_cert: Annotated[
        File, typer.Option(envvar="INFEED_TLS_CERT", help="The client's certificate (PEM).")
    ] = None,
    tls_key: Annotated[
        File,
        typer.Option(envvar="INFEED_TLS_KEY", help="Its private key. Default: in the same file."),
    ] = None,
    tls_server_name: Annotated[
        str | None, typer.Option(help="The name in the server's certificate. Default: the host.")
    ] = None,
    token_file: Annotated[
        File, typer.Option(envvar="INFEED_TOKEN_FILE", help="A file that holds the token.")
    ] = None,
) -> dict[str, Any]:
    """Returns the arguments of `infeed.connect` for these options."""
    arguments: dict[str, Any] = {}
    if tls or tls_ca or tls_cert or tls_key or tls_server_name:
        arguments["tls"] = TLS(tls_ca, tls_cert, tls_key, tls_server_name)
    if token_file is not None:
        arguments["token"] = _token(token_file)
    return arguments


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
        problem = (getattr(error, "strerror", None) or "not a text file").lower()
        raise ConfigError(f"--token-file {file}: {problem}", file=file) from None
