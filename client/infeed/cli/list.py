"""The command `infeed list`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from infeed.cli.connection import Connection, Target, Timeout
from infeed.cli.inventory import ServerPipelines, differences, list_servers, specs_by_name
from infeed.cli.model_options import with_models
from infeed.cli.output import new_console, print_json, print_line
from infeed.cli.spec_json import access, spec_to_json
from infeed.shared.arguments import check_seconds
from infeed.shared.printable import printable
from infeed.shared.spec import PipelineSpec

DIFFERENT_STATUS = 1
"""The exit status if servers differ or one does not answer; that of every error is the same."""

_MIN_WIDTH = 140
"""Characters of a line that is not written to a terminal: fields and guarantees fit into it."""


@with_models
def list_pipelines(
    target: Target,
    connection: Connection,
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
    arguments = connection.arguments()
    credentials = Credentials(arguments.get("token"), arguments.get("tls"))
    with closing(GrpcTransport(target, credentials)) as transport:
        listed = list_servers(transport, timeout)
    found = differences(listed)
    if as_json:
        print_json(_to_json(target, listed, found))
    else:
        _print(listed, found)
    if found:
        raise typer.Exit(DIFFERENT_STATUS)


def _print(listed: Sequence[ServerPipelines], found: Sequence[str]) -> None:
    console = new_console(_MIN_WIDTH)
    pipelines = specs_by_name(listed)
    if pipelines:
        console.print(_table(pipelines))
    else:
        console.print("no pipeline, or none that this token has access to")
    for line in found:
        print_line(console, f"differs: {line}")
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
        for spec in dict.fromkeys(map(_row, specs.values())):
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
                "server": server.server,
                "error": None if server.error is None else server.error.message,
                "pipelines": [spec_to_json(spec) for spec in server.pipelines],
            }
            for server in listed
        ],
        "differences": list(found),
    }
