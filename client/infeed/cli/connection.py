"""Arguments of the commands that connect: target, pipeline, TLS and authentication."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import infeed
from infeed.cli.model_options import option
from infeed.cli.output import problem_of
from infeed.shared.errors import ConfigError

SECURITY = "TLS and token"
"""The title of these options in the help of a command."""

Target = Annotated[
    str, typer.Argument(help="host:port of a server, or several, separated by commas.")
]
PipelineName = Annotated[str, typer.Argument(help="The pipeline's name.")]
TIMEOUT = "Seconds to wait for a server that is starting."
SEED = "Seed of the order. Default: the pipeline's."


_PANEL = {"rich_help_panel": SECURITY}
_FILE = {"metavar": "FILE", **_PANEL}


@dataclass(frozen=True)
class Connection:
    """The options of TLS and authentication, the same for every command that connects."""

    tls: bool = option(False, "Use TLS, and trust the system's authorities.", **_PANEL)
    tls_ca: Path | None = option(
        None, "Use TLS, and trust these authorities (PEM).", envvar="INFEED_TLS_CA", **_FILE
    )
    tls_cert: Path | None = option(
        None, "The client's certificate (PEM).", envvar="INFEED_TLS_CERT", **_FILE
    )
    tls_key: Path | None = option(
        None, "Its private key. Default: in the same file.", envvar="INFEED_TLS_KEY", **_FILE
    )
    tls_server_name: str | None = option(
        None, "The name in the server's certificate. Default: the host.", metavar="NAME", **_PANEL
    )
    token_file: Path | None = option(
        None, "A file that holds the token.", envvar="INFEED_TOKEN_FILE", **_FILE
    )

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
