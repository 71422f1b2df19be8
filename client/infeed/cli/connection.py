"""Arguments of the commands that connect: target, pipeline, TLS and authentication."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import infeed
from infeed.cli.output import problem_of
from infeed.shared.errors import ConfigError

SECURITY = "TLS and token"
"""The title of these options in the help of a command."""

Target = Annotated[
    str, typer.Argument(help="host:port of a server, or several, separated by commas.")
]
PipelineName = Annotated[str, typer.Argument(help="The pipeline's name.")]
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", help="Seconds to wait for a server that is starting.")
]
BatchSize = Annotated[
    int | None, typer.Option(help="Slots of each batch of a rank. Default: the pipeline's.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the order. Default: the pipeline's.")]


def _option(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel=SECURITY, **options)


def _file(variable: str, help_text: str) -> Any:
    return _option(envvar=variable, metavar="FILE", help=help_text)


@dataclass(frozen=True)
class Connection:
    """The options of TLS and authentication, the same for every command that connects."""

    tls: Annotated[bool, _option("--tls", help="Use TLS, and trust the system's authorities.")] = (
        False
    )
    tls_ca: Annotated[
        Path | None, _file("INFEED_TLS_CA", "Use TLS, and trust these authorities (PEM).")
    ] = None
    tls_cert: Annotated[
        Path | None, _file("INFEED_TLS_CERT", "The client's certificate (PEM).")
    ] = None
    tls_key: Annotated[
        Path | None, _file("INFEED_TLS_KEY", "Its private key. Default: in the same file.")
    ] = None
    tls_server_name: Annotated[
        str | None,
        _option(metavar="NAME", help="The name in the server's certificate. Default: the host."),
    ] = None
    token_file: Annotated[
        Path | None, _file("INFEED_TOKEN_FILE", "A file that holds the token.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `infeed.connect`, `tls` and `token`. Raises `ConfigError`."""
        arguments: dict[str, Any] = {}
        files = (self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name)
        if self.tls or any(files):
            arguments["tls"] = infeed.TLS(*files)
        if self.token_file is not None:
            arguments["token"] = _token(self.token_file)
        return arguments


def _token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file}: {problem_of(error)}", file=file) from None
