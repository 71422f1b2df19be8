"""The command `infeed list`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infeed.cli.connection import Timeout, with_connection_options
from infeed.cli.inventory import ServerPipelines, differences, list_servers, specs_by_name
from infeed.cli.spec_json import access, spec_to_json
from infeed.shared.arguments import check_seconds
from infeed.shared.printable import printable
from infeed.shared.spec import PipelineSpec

DIFFERENT_STATUS = 1
"""The exit status if servers differ or one does not answer; that of every error is the same."""

_MIN_WIDTH = 140
"""Characters of a line that is not written to a terminal: fields and guarantees fit into it."""


@with_connection_options
def list_pipelines(
    *,
    connection: dict[str, Any],
    target: Annotated[
        str, typer.Argument(help="host:port of a server, or several, separated by commas.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of the table.")
    ] = False,
    timeout: Timeout = 20.0,
) -> None:
    """Lists the pipelines that servers serve, and how the servers differ.

    Exit status: 0 if all servers serve the same pipelines, 1 if they differ
    or one does not answer, 2 for a wrong option.

    \b
    Examples:
      infeed list 127.0.0.1:7470
      infeed list host-a:7470,host-b:7470 --json
    """
    from infeed.rpc.channel import GrpcTransport  # noqa: PLC0415 - other commands do not connect
    from infeed.rpc.credentials import Credentials  # noqa: PLC0415

    timeout = check_seconds("--timeout", timeout)
    credentials = Credentials(connection.get("token"), connection.get("tls"))
    with closing(GrpcTransport(target, credentials)) as transport:
        listed = list_servers(transport, timeout)
    found = differences(listed)
    if as_json:
        typer.echo(json.dumps(_to_json(target, listed, found), indent=2))
    else:
        _print(listed, found)
    if found:
        raise typer.Exit(DIFFERENT_STATUS)


def _print(listed: Sequence[ServerPipelines], found: Sequence[str]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _MIN_WIDTH)
    pipelines = specs_by_name(listed)
    if pipelines:
        console.print(_table(pipelines))
    else:
        console.print("no pipeline, or none that this token has access to")
    for line in found:
        console.print(f"differs: {printable(line)}", highlight=False, markup=False, soft_wrap=True)
    if len(listed) > 1 and not found:
        console.print(f"all {len(listed)} servers serve the same")


def _table(pipelines: Mapping[str, Mapping[str, PipelineSpec]]) -> Table:
    table = Table(
        *("pipeline", "source", "samples", "batch", "fields", "order", "guarantee", "fingerprint"),
        box=SIMPLE_HEAD,
        highlight=False,
    )
    for name, specs in pipelines.items():
        # Servers that differ have a row each.
        for spec in {_row(each): each for each in specs.values()}:
            table.add_row(*map(Text, (printable(name), *spec)))
    return table


def _row(spec: PipelineSpec) -> tuple[str, ...]:
    wire_types = {field.name: field.data_type for field in spec.wire_spec}
    fields = []
    for field in spec.element_spec:
        wire_type = wire_types.get(field.name, field.data_type)
        sent = "" if wire_type == field.data_type else f", sent as {wire_type}"
        fields.append(printable(f"{field}{sent}"))
    kind = f"{printable(spec.source_kind) or '?'}\n{access(spec)}"
    return (
        kind if spec.engine == "local" else f"{kind}\n{spec.engine.replace('_', '-')}",
        "unknown" if spec.sample_count is None else str(spec.sample_count),
        str(spec.batch_size),
        "\n".join(fields),
        f"{printable(spec.shuffle_mode) or '?'}\nseed {spec.seed}",
        str(spec.guarantee).replace(", ", "\n"),
        printable(spec.fingerprint[:12]),
    )


def _to_json(
    target: str, listed: Sequence[ServerPipelines], found: Sequence[str]
) -> dict[str, Any]:
    return {
        "target": target,
        "servers": [
            {
                "server": each.server,
                "error": None if each.error is None else each.error.message,
                "pipelines": [spec_to_json(spec) for spec in each.pipelines],
            }
            for each in listed
        ],
        "differences": list(found),
    }
