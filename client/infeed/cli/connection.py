"""Arguments of commands that connect to a server: target, pipeline, TLS and token."""

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
"""The panel of these options in a command's help."""

Target = Annotated[
    str, typer.Argument(help="Address of a server, host:port; separate several with commas.")
]
PipelineName = Annotated[str, typer.Argument(help="Name of the pipeline.")]
TIMEOUT = "Seconds to wait for the server to start."
SEED = "Seed of the order. Default: the pipeline's."


_PANEL = {"rich_help_panel": SECURITY}
_FILE = {"metavar": "FILE", **_PANEL}


@dataclass(frozen=True)
class Connection:
    """TLS and authentication options, the same for every command that connects."""

    tls: bool = option(False, "Use TLS and trust the system's certificate authorities.", **_PANEL)
    tls_ca: Path | None = option(
        None,
        "Use TLS and trust these certificate authorities (PEM).",
        envvar="INFEED_TLS_CA",
        **_FILE,
    )
    tls_cert: Path | None = option(
        None,
        "Client certificate (PEM), for servers that require one.",
        envvar="INFEED_TLS_CERT",
        **_FILE,
    )
    tls_key: Path | None = option(
        None,
        "Private key of the client certificate. Default: in the same file.",
        envvar="INFEED_TLS_KEY",
        **_FILE,
    )
    tls_server_name: str | None = option(
        None,
        "Name to expect in the server's certificate. Default: the host.",
        metavar="NAME",
        **_PANEL,
    )
    token_file: Path | None = option(
        None, "File that contains the bearer token.", envvar="INFEED_TOKEN_FILE", **_FILE
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
