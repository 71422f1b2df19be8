"""The options that say how to connect, the same for every command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from infeed.errors import ConfigError
from infeed.tls import TLS

File = Path | None


def connection(
    *,
    tls: Annotated[
        bool, typer.Option("--tls", help="Connect in TLS; the system's authorities are trusted.")
    ] = False,
    tls_ca: Annotated[
        File, typer.Option(envvar="INFEED_TLS_CA", help="Trust these authorities (PEM) instead.")
    ] = None,
    tls_cert: Annotated[
        File, typer.Option(envvar="INFEED_TLS_CERT", help="Show this certificate (PEM).")
    ] = None,
    tls_key: Annotated[
        File, typer.Option(envvar="INFEED_TLS_KEY", help="Its key, if it is not in the same file.")
    ] = None,
    tls_server_name: Annotated[
        str | None, typer.Option(help="What the server's certificate names. Default: the host.")
    ] = None,
    token_file: Annotated[
        File, typer.Option(envvar="INFEED_TOKEN_FILE", help="Show the token in this file.")
    ] = None,
) -> dict[str, Any]:
    """What `infeed.connect` is to be given for them."""
    given: dict[str, Any] = {}
    if tls or tls_ca or tls_cert or tls_key or tls_server_name:
        given["tls"] = TLS(tls_ca, tls_cert, tls_key, tls_server_name)
    if token_file is not None:
        given["token"] = _token(token_file)
    return given


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command these options; it gets what `connect` takes for them as `connection`."""
    added = _parameters(connection)
    kept = [each for name, each in _parameters(command).items() if name != "connection"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        theirs = {name: given.pop(name) for name in added}
        command(**given, connection=connection(**theirs))

    # Typer asks both what a command takes.
    shown = [*kept, *added.values()]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """With their annotations as objects: text would be looked up in another module."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    return {
        name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, each in parameters.items()
    }


def _token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = (getattr(error, "strerror", None) or "no text").lower()
        raise ConfigError(f"--token-file {file}: {problem}", file=file) from None


__all__ = ["connection", "connects"]
