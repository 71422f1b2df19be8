"""The command `infeed cache`."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from infeed.cli import PREPARE
from infeed.cli.output import new_console, print_lines
from infeed.shared.errors import ConfigError
from infeed.shared.printable import printable
from infeed_server.cli.logs import set_up_logging

_SHOWN = 12
"""Characters of a folder's name in the table: enough to select the folder."""


class Action(str, Enum):
    """The actions of `infeed cache`."""

    LIST = "list"
    CLEAR = "clear"
    VERIFY = "verify"


app = typer.Typer()


@app.command(rich_help_panel=PREPARE)
def cache(
    action: Annotated[
        Action,
        typer.Argument(
            help="list: show the caches. clear: delete unused ones. verify: read every sample "
            "and compare its hash."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(help="Pipeline, or the start of a folder's name. Default: all."),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder of the caches. Default: that of `- cache: disk`.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Lists, deletes or verifies the caches of `- cache: disk`.

    Exits with status 1 if no cache has this name, a cache to delete is in use, or a sample is
    damaged. Servers replace damaged samples.

    \b
    Examples:
      infeed cache list
      infeed cache verify photos
      infeed cache clear --path /mnt/nvme/infeed
    """
    set_up_logging()
    from infeed_server.cache import directory

    root = path.absolute() if path else directory.default_root()
    found = directory.list_directories(root)
    failed, rows = False, []
    for one in found:
        if not (name is None or name == one.pipeline or one.path.name.startswith(name)):
            continue
        row = {**asdict(one), "path": str(one.path)}
        try:
            if action is Action.VERIFY:
                row["kept"], row["damaged"] = directory.verify(one)
                failed = failed or bool(row["damaged"])
            else:
                row["kept"] = directory.kept_samples(one)
        except FileNotFoundError:  # deleted meanwhile
            continue
        if action is Action.CLEAR:
            row["is_deleted"] = directory.delete(one)
            failed = failed or not row["is_deleted"]
        rows.append(row)
    if name is not None and not rows:
        available = ", ".join(sorted({one.pipeline for one in found})) or "none"
        raise ConfigError(f"{root} has no cache of {name!r}; available: {available}")
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        _print(root, rows)
    raise typer.Exit(failed)


def _print(root: Path, rows: list[dict[str, Any]]) -> None:
    out = new_console()
    print_lines(out, f"caches in {root}:" if rows else f"no cache in {root}")
    table = Table(box=SIMPLE_HEAD, highlight=False)
    for head in ("pipeline", "samples", "size", "state", "folder"):
        table.add_column(head, no_wrap=head == "folder")
    for row in rows:
        state = "in use" if row["is_in_use"] else "unused"
        if "damaged" in row:
            state = f"{row['damaged']:,} damaged" if row["damaged"] else "verified"
        if "is_deleted" in row:
            state = "deleted" if row["is_deleted"] else "in use, not deleted"
        table.add_row(
            escape(printable(row["pipeline"])),
            f"{row['kept']:,} of {row['samples']:,}",
            decimal(int(row["bytes"])),
            state,
            Path(row["path"]).name[:_SHOWN],
        )
    if rows:
        out.print(table)
