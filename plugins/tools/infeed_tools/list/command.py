"""The command `infeed list`: the pipelines of each server of a target, and their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Annotated, NamedTuple

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from infeed.cli import LOOK
from infeed.cli.connection import TIMEOUT, Connection, Target
from infeed.cli.model_options import with_models
from infeed.cli.output import new_console, print_json, print_line, spec_to_json
from infeed.shared.arguments import check_seconds
from infeed.shared.errors import InfeedError
from infeed.shared.printable import printable
from infeed.shared.spec import PipelineSpec

DIFFERENT_STATUS = 1
"""The exit status if servers differ or one does not answer, the same as for an error."""

_MIN_WIDTH = 140
"""Characters of a line outside a terminal: enough for fields and guarantees."""

_MAX_CLASSES = 3
"""Classes of a field that are shown by name."""

_MAX_THREADS = 16
"""Servers queried at the same time: with fewer, a silent server delays others."""


class Served(NamedTuple):
    """A server's pipelines, sorted by name, and why it cannot serve others."""

    pipelines: Sequence[PipelineSpec]
    broken: Mapping[str, str]


Listed = Mapping[str, Served | InfeedError]
"""The answer of each server, or the error of the query."""


app = typer.Typer()


@app.command("list", rich_help_panel=LOOK)
@with_models
def list_pipelines(
    target: Target,
    connection: Connection,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of the table.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help=TIMEOUT)] = 20.0,
) -> None:
    """Lists the pipelines of servers, and differences between the servers.

    Exit status: 0 if all servers serve the same pipelines, 1 if they differ
    or one does not answer, 2 for a wrong option.

    \b
    Examples:
      infeed list 127.0.0.1:7470
      infeed list host-a:7470,host-b:7470 --json
    """
    timeout = check_seconds("--timeout", timeout)
    listed = _ask(target, connection, timeout)
    found = differences(listed)
    if as_json:
        servers = [
            {"server": server, "error": answer.message, "pipelines": [], "broken": {}}
            if isinstance(answer, InfeedError)
            else {
                "server": server,
                "error": None,
                "pipelines": list(map(spec_to_json, answer.pipelines)),
                "broken": answer.broken,
            }
            for server, answer in listed.items()
        ]
        print_json({"target": target, "servers": servers, "differences": found})
    else:
        _print(listed, found)
    if found:
        raise typer.Exit(DIFFERENT_STATUS)


def _ask(target: str, connection: Connection, timeout: float) -> Listed:
    """Queries every server of a target, waiting at most `timeout` seconds for each.

    Raises the first server's error if none answers.
    """
    from infeed.rpc.channel import GrpcTransport
    from infeed.rpc.credentials import Credentials

    arguments = connection.arguments()
    credentials = Credentials(arguments.get("token"), arguments.get("tls"))

    def ask(single: GrpcTransport) -> Served | InfeedError:
        try:
            listed = single.list_pipelines(timeout)  # without class names
            specs = [single.get_pipeline(spec.name, timeout) for spec in listed]
            return Served(specs, single.broken_pipelines(timeout))
        except InfeedError as error:
            return error

    # The transports close first, so that Ctrl-C does not wait for an answer.
    with (
        ThreadPoolExecutor(_MAX_THREADS, "infeed-list") as pool,
        closing(GrpcTransport(target, credentials)) as transport,
        ExitStack() as singles,
    ):
        asked = {
            server: singles.enter_context(closing(transport.for_server(server)))
            for server in transport.servers()
        }
        listed = dict(zip(asked, pool.map(ask, asked.values()), strict=True))
    errors = [answer for answer in listed.values() if isinstance(answer, InfeedError)]
    if len(errors) == len(listed):
        raise errors[0]
    return listed


def _print(listed: Listed, found: Sequence[str]) -> None:
    console = new_console(width=_MIN_WIDTH)
    heads = ("pipeline", "source", "samples", "batch", "fields", "order", "guarantee")
    table = Table(*heads, "fingerprint", box=SIMPLE_HEAD, highlight=False)
    for name, specs in _by_name(listed).items():
        # Servers that differ get a row each.
        for row in dict.fromkeys(map(_row, specs.values())):
            table.add_row(*map(Text, (printable(name), *row)))
    if table.rows:
        console.print(table)
    else:
        console.print("no pipelines, or none that this token may read")
    for server, answer in listed.items():
        for name, reason in () if isinstance(answer, InfeedError) else answer.broken.items():
            print_line(console, f"broken: {name} at {server}: {reason}")
    for line in found:
        print_line(console, f"differs: {line}")
    if len(listed) > 1 and not found:
        console.print(f"all {len(listed)} servers serve the same pipelines")


def _row(spec: PipelineSpec) -> tuple[str, ...]:
    values = spec_to_json(spec)
    fields = []
    for field, value in zip(spec.element_spec, values["fields"], strict=True):
        sent_as = value["sent_as"]
        other = f", sent as {sent_as}" * (sent_as not in (None, field.data_type))
        fields.append(printable(f"{field}{other}"))
        if names := spec.classes.get(field.name):
            fields.append(printable(f"  {_class_text(names)}"))
    engine = "" if spec.engine == "local" else f"\n{values['engine']}"
    return (
        f"{printable(spec.source_kind) or '?'}\n{values['access']}{engine}",
        "unknown" if spec.sample_count is None else str(spec.sample_count),
        str(spec.batch_size),
        "\n".join(fields),
        f"{printable(spec.shuffle_mode) or '?'}\nseed {spec.seed}",
        str(spec.guarantee).replace(", ", "\n"),
        printable(spec.fingerprint[:12]),
    )


def _class_text(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MAX_CLASSES else ""
    plural = "es" if len(names) > 1 else ""
    return f"{len(names)} class{plural}: {', '.join(names[:_MAX_CLASSES])}{more}"


def _by_name(listed: Listed) -> dict[str, dict[str, PipelineSpec]]:
    """Returns the spec of each pipeline by server: name → server → spec, sorted by name."""
    result: dict[str, dict[str, PipelineSpec]] = {}
    for server, answer in listed.items():
        for spec in () if isinstance(answer, InfeedError) else answer.pipelines:
            result.setdefault(spec.name, {})[server] = spec
    return dict(sorted(result.items()))


def differences(listed: Listed) -> list[str]:
    """Describes the differences between servers that should be equal; empty without any."""
    result = [f"{at}: {error}" for at, error in listed.items() if isinstance(error, InfeedError)]
    answering = [at for at, answer in listed.items() if not isinstance(answer, InfeedError)]
    for name, specs in _by_name(listed).items():
        if missing := [server for server in answering if server not in specs]:
            result.append(
                f"{name}: served by {', '.join(specs)}, but not by {', '.join(missing)}; feeds use "
                "only the former"
            )
        values = {server: spec_to_json(spec) for server, spec in specs.items()}
        for label in next(iter(values.values())):
            servers: dict[str, list[str]] = {}
            for server, spec in specs.items():
                words = {
                    "fields": ", ".join(map(str, spec.element_spec)),
                    "guarantee": spec.guarantee,
                    "classes": ", ".join(map(_class_text, spec.classes.values())),
                }
                value = words.get(label, values[server][label])
                servers.setdefault("unknown" if value is None else str(value), []).append(server)
            if len(servers) == 1 or label == "server_version":
                continue
            shown = "; ".join(f"{value} at {', '.join(at)}" for value, at in servers.items())
            if label == "fingerprint":
                shown += ". Feeds never mix them: serve the same definition, data and TensorFlow"
            result.append(f"{name}: {label.replace('_', ' ')} differs: {shown}")
    return result
